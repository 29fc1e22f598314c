"""Compile results on disk, by the content of everything they depend on."""

import hashlib
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import msgspec

from wavewise.audit.compile import Job, options_of, triton_source
from wavewise.audit.records import Resources
from wavewise.audit.toolchain import fingerprint

_FORMAT = "1"
"""Raised when Resources or its meaning changes, so that old entries are not read."""


def folder() -> Path:
    """WAVEWISE_CACHE_DIR, else the user's cache folder (XDG base directory specification)."""
    chosen = os.environ.get("WAVEWISE_CACHE_DIR")
    base = chosen or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "wavewise"
    )
    return Path(base) / "audit"


def key(kernel: Any, job: Job) -> str:
    """Hash of the kernel with all it calls (Triton's own), constants, options, target and compiler versions.

    Options and environment are hashed as Triton hashes them for its own cache: variables such as
    TRITON_DEFAULT_FP_FUSION or TRITON_PTXAS_PATH change the code, and with it registers. Empty where Triton
    refuses the options: the compile says why, and there is nothing to keep.
    """
    from triton._C.libtriton import get_cache_invalidating_env_vars
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend

    source = triton_source(kernel, job)
    try:
        with warnings.catch_warnings():
            # What Triton warns of while it reads options, it warns of again when it compiles.
            warnings.simplefilter("ignore")
            backend: Any = make_backend(GPUTarget("cuda", job.capability, 32))
            options = backend.parse_options({**options_of(job.config), **source.parse_options()}).hash()
    except Exception:
        return ""
    parts = [
        _FORMAT,
        source.hash(),
        backend.hash(),
        options,
        repr(sorted(get_cache_invalidating_env_vars().items())),
        fingerprint(),
        os.environ.get("PTXAS_OPTIONS", ""),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def get(name: str) -> Resources | None:
    """The stored result; None where there is none that can be read."""
    try:
        return msgspec.json.decode((folder() / f"{name}.json").read_bytes(), type=Resources)
    except (OSError, msgspec.DecodeError):
        return None


def put(name: str, found: Resources) -> None:
    """Stores a result; a folder that cannot be written is no error, the next audit compiles again."""
    place = folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=place)
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode(found))
        os.replace(temporary, place / f"{name}.json")
    except OSError:
        return
