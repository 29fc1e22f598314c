"""Whether this machine can run the kernels at all."""

from wavewise.errors import InputError, MissingExtraError


def require_gpu() -> None:
    """Refuses before any work where torch, triton or a GPU is missing.

    Raises:
        MissingExtraError: torch or triton is not installed.
        InputError: torch sees no CUDA GPU.
    """
    try:
        import torch
        import triton  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"bench needs {error.name}: pip install 'wavewise[kernels]'") from error
    if not torch.cuda.is_available():
        raise InputError("torch sees no CUDA GPU on this machine; `wavewise plan-attention` needs none")
