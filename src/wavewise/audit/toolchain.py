"""The tools that the triton wheel brings: ptxas and cuobjdump need no GPU and no CUDA toolkit."""

import importlib.util
import subprocess
from functools import lru_cache
from pathlib import Path

from wavewise.errors import InputError, MissingExtraError

_HELP = "auditing kernels needs triton; install it with: pip install 'wavewise[kernels]'"


def tool(name: str) -> Path:
    """Path of a tool in the installed triton wheel.

    Raises:
        MissingExtraError: triton is not installed.
        InputError: it is, but without that tool.
    """
    spec = importlib.util.find_spec("triton")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(_HELP)
    path = Path(next(iter(spec.submodule_search_locations)), "backends", "nvidia", "bin", name)
    if not path.exists():
        raise InputError(f"the installed triton brings no {name}; a wheel from PyPI for Linux does")
    return path


def require_triton() -> None:
    """Raises MissingExtraError where triton cannot be imported."""
    if importlib.util.find_spec("triton") is None:
        raise MissingExtraError(_HELP)


@lru_cache(maxsize=8)
def version(path: Path) -> str:
    """Last line of a tool's `--version`: "Build cuda_13.4.r13.4/compiler.38657139_0"."""
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()[-1]


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """Everything about the installed compiler that its output depends on."""
    import triton

    names = ("ptxas", "ptxas-blackwell")
    bins = tool("ptxas").parent
    return "; ".join(
        [f"triton {triton.__version__}", *(version(bins / n) for n in names if (bins / n).exists())]
    )
