"""What the recording host can see of a server that runs on it: is it here, and how was it started?"""

import ipaddress
import re
import socket
from contextlib import suppress
from pathlib import Path

import msgspec

from wavewise.record.model import Server

_LISTEN = "0A"
_SECRET = re.compile(r"key|token(?!s|ize)|secret|passw|credential", re.IGNORECASE)


def is_local(host: str) -> bool:
    """Whether a host name means this machine: loopback, or an address that one of its interfaces has."""
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(addresses) and all(_is_mine(str(address)) for address in addresses)


def _is_mine(address: str) -> bool:
    if ipaddress.ip_address(address.split("%")[0]).is_loopback:
        return True
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))  # only an address of this machine can be bound
        except OSError:
            return False
    return True


def server_command(port: int) -> list[str] | None:
    """The command line of the process that listens on a TCP port of this machine.

    Read from /proc: the socket's inode from net/tcp, its owner from the processes' open files.

    Returns:
        The arguments, None where there is no /proc or the process belongs to someone else.
    """
    inodes = _listening_inodes(port)
    if not inodes:
        return None
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        if _open_files(process) & inodes:
            try:
                argv = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            return [part.decode(errors="replace") for part in argv if part]
    return None


def _open_files(process: Path) -> set[str]:
    """What a process's descriptors point to; nothing for a process of someone else."""
    links: set[str] = set()
    with suppress(OSError):
        for entry in (process / "fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                links.add(str(entry.readlink()))
    return links


def _listening_inodes(port: int) -> set[str]:
    found: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            cells = line.split()
            if cells[3] == _LISTEN and int(cells[1].rsplit(":", 1)[1], 16) == port:
                found.add(f"socket:[{cells[9]}]")
    return found


def flags_of(argv: list[str]) -> dict[str, str]:
    """Long options of a command line, dashes turned to underscores; a bare switch counts as "true".

    Secrets are replaced. A switch `--no-x` reads as `no_x`.
    """
    flags: dict[str, str] = {}
    for index, word in enumerate(argv):
        if not word.startswith("--") or len(word) < 3:
            continue
        name, equals, value = word[2:].partition("=")
        if not equals:
            after = argv[index + 1] if index + 1 < len(argv) else ""
            value = after if after and not after.startswith("--") else "true"
        flags[name.replace("-", "_")] = value
    return hide_secrets(flags)


def hide_secrets(flags: dict[str, str]) -> dict[str, str]:
    """The same flags, with the values of those that name a secret replaced."""
    return {name: ("(hidden)" if _SECRET.search(name) else value) for name, value in flags.items()}


def without_key(server: Server, key: str | None) -> Server:
    """The same description, with the API key replaced wherever the server's own settings show it."""
    if not key:
        return server
    return msgspec.json.decode(msgspec.json.encode(server).decode().replace(key, "(hidden)"), type=Server)
