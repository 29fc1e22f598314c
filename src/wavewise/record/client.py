"""Control requests to the one host that was named: no redirects, no proxies, timeouts everywhere.

The answers' Date headers tell the offset of the server's clock on the side.
"""

import ssl
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from wavewise.errors import InputError, UsageError
from wavewise.record.model import Clock

CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0
_DATE_AGE_S = 2.0


@dataclass(frozen=True)
class Target:
    """The server: where it listens and how to speak to it. `repr` hides the key."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    prefix: str
    key: str | None

    def __repr__(self) -> str:
        return f"Target({self.url!r})"

    @property
    def netloc(self) -> str:
        """Host and port as a Host header wants them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The address without credentials."""
        return f"{'https' if self.tls else 'http'}://{self.netloc}{self.prefix}"

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request."""
        base = {"user-agent": "wavewise-record", "accept": "*/*"}
        return base | ({"authorization": f"Bearer {self.key}"} if self.key else {})


def parse_target(url: str, key: str | None, ca_file: Path | None = None) -> Target:
    """Read a server's URL.

    Args:
        url: `http://host:port`, with or without the scheme and a trailing `/v1`.
        key: API key, sent as a bearer token.
        ca_file: certificates to trust instead of the system's.

    Raises:
        UsageError: not a URL of a server, or one with credentials or a query in it.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
        raise UsageError(f"{url!r} is not the URL of a server; give it like http://localhost:8000")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError(
            "the URL must carry no credentials and no query; put the API key into "
            "an environment variable (--api-key-env)"
        )
    if key is not None and (not key.isascii() or any(c in key for c in "\r\n")):
        raise UsageError("the API key holds characters that no header can carry")
    tls = None
    if parts.scheme == "https":
        try:
            tls = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"{ca_file}: holds no certificates that can be read ({error})") from error
    prefix = parts.path.rstrip("/").removesuffix("/v1")
    return Target(parts.hostname, port or (443 if tls else 80), tls, prefix, key)


@dataclass(frozen=True)
class Answer:
    """One answer, read whole."""

    status: int
    text: str
    content_type: str

    @property
    def json(self) -> Any:
        """The body as JSON, None where it is none."""
        try:
            return msgspec.json.decode(self.text)
        except (msgspec.DecodeError, UnicodeEncodeError):
            return None

    @property
    def error(self) -> str:
        """What the server says is wrong, on one line and not too long."""
        return error_message(self.text)


def error_message(body: str) -> str:
    """The message in an error body, in any of the engines' shapes, or the body itself."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeEncodeError):
        found = None
    if isinstance(found, dict):
        inner = found.get("error", found)
        found = inner.get("message", inner.get("detail")) if isinstance(inner, dict) else inner
    text = " ".join(str(found if found is not None else body).split())
    return text if len(text) <= 300 else text[:297] + "..."


class Client:
    """Asks the named server; every failure is an InputError that says what to do."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._low, self._high, self._dated = float("-inf"), float("inf"), 0
        self._http = httpx.AsyncClient(
            base_url=target.url,
            headers=target.headers,
            verify=target.tls or True,
            trust_env=False,  # a proxy from the environment would be a host that nobody named
            follow_redirects=False,
            timeout=httpx.Timeout(REQUEST_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=16),
        )

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.aclose()

    async def ask(
        self, method: str, path: str, body: object = None, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Answer:
        """Send one request and read its answer, whatever its status.

        Raises:
            InputError: no answer, a redirect, or a refused key.
        """
        url = self.target.url
        sent = time.time()
        try:
            reply = await self._http.request(
                method, path, json=body, timeout=httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
            )
        except httpx.ConnectTimeout as error:
            raise InputError(
                f"{url}: no connection within {CONNECT_TIMEOUT_S:.0f} s; check host, port and firewall"
            ) from error
        except httpx.TimeoutException as error:
            raise InputError(
                f"{url}{path}: no answer within {timeout_s:.0f} s; is the server overloaded or stuck?"
            ) from error
        except httpx.ConnectError as error:
            if "CERTIFICATE" in str(error) or "SSL" in str(error):
                raise InputError(
                    f"{url}: its TLS certificate cannot be verified ({error}); name its "
                    "authority with --ca-file"
                ) from error
            raise InputError(
                f"{url}: no server answers there ({error}); check host and port, and that it is up"
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise InputError(
                f"{url}{path}: the connection broke ({type(error).__name__}: {error}); "
                "is this an HTTP server, and is it still up?"
            ) from error
        self._note_date(reply.headers.get("date"), sent, time.time())
        if reply.is_redirect:
            raise InputError(
                f"{url}{path}: redirects to "
                f"{reply.headers.get('location', 'nowhere')!r}; name that server's URL "
                "if it is meant"
            )
        if reply.status_code in (401, 403):
            raise InputError(
                f"{url}{path}: the server refuses "
                f"{'the' if self.target.key else 'requests without an'} API key "
                f"({reply.status_code}); set the right one in the variable that "
                "--api-key-env names"
            )
        return Answer(reply.status_code, reply.text, reply.headers.get("content-type", ""))

    def _note_date(self, date: str | None, sent: float, received: float) -> None:
        """A date is the server's time when the answer was made, cut to seconds, from a header it renews once a
        second: up to two seconds old.
        """
        try:
            stamp = parsedate_to_datetime(date).timestamp() if date else None
        except ValueError:
            return
        if stamp is None:
            return
        low, high = stamp - received, stamp + _DATE_AGE_S - sent
        self._dated += 1
        # Bounds that no longer meet mean that a clock was set; the newest answer then counts alone.
        meet = max(self._low, low) <= min(self._high, high)
        self._low, self._high = (max(self._low, low), min(self._high, high)) if meet else (low, high)

    @property
    def clock(self) -> Clock:
        """The server's clock against this one's, as far as the answers tell."""
        if not self._dated:
            return Clock()
        return Clock(
            offset_s_low=round(self._low, 3), offset_s_high=round(self._high, 3), answers=self._dated
        )
