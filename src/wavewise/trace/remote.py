"""Files behind a URL, through fsspec where the extra `remote` is installed: s3://, gs://, https:// ..."""

import importlib
import os
import re
from typing import Any, BinaryIO, cast

from wavewise.errors import InputError, MissingExtraError

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.S)


def url_of(path: str | os.PathLike[str]) -> str | None:
    """`path` as a URL, None where it is a path of this machine.

    A URL that went through `pathlib` has lost one of its slashes; it is given back. A one-letter scheme is a
    drive.
    """
    text = os.fspath(path)
    found = _URL.fullmatch(text)
    if found is None or os.path.exists(text):
        return None
    scheme, rest = found.groups()
    return f"{scheme}:///{rest}" if scheme.lower() == "file" else f"{scheme}://{rest}"


def open_url(url: str) -> tuple[BinaryIO, int]:
    """The file behind `url`, open for reading forward, and its size in bytes.

    Raises:
        InputError: it cannot be opened.
        MissingExtraError: fsspec, or what it needs for this kind of URL, is not installed.
    """
    try:
        file = _filesystem(url).open(url, "rb")
        return cast(BinaryIO, file), int(getattr(file, "size", 0) or 0)
    except OSError as error:
        raise InputError(f"{url}: cannot be read ({error.strerror or error})") from error


def list_url(url: str) -> list[str] | None:
    """The files in the folder behind `url`, sorted; None where it is no folder.

    Raises:
        InputError: nothing is there.
        MissingExtraError: see `open_url`.
    """
    filesystem = _filesystem(url)
    try:
        if not filesystem.exists(url):
            raise InputError(f"{url}: no such file or folder")
        if not filesystem.isdir(url):
            return None
        entries = filesystem.ls(url, detail=True)
    except OSError as error:
        raise InputError(f"{url}: cannot be read ({error.strerror or error})") from error
    return sorted(filesystem.unstrip_protocol(entry["name"]) for entry in entries if entry["type"] == "file")


def _filesystem(url: str) -> Any:
    try:
        fsspec: Any = importlib.import_module("fsspec")
    except ImportError as error:
        raise MissingExtraError(
            f"{url}: reading URLs needs fsspec: pip install 'wavewise[remote]'"
        ) from error
    try:
        return fsspec.url_to_fs(url)[0]
    except ImportError as error:  # the implementation for one scheme, such as s3fs
        raise MissingExtraError(f"{url}: {error}") from error
    except ValueError as error:
        raise InputError(f"{url}: {error}") from error
