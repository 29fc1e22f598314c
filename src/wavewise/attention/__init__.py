"""Split-KV sparse-MLA decode attention over the FP8 KV cache of DeepSeek-V4-class models.

    from wavewise.attention import flash_mla_with_kvcache          # FlashMLA's signature
    from wavewise.attention import flash_mla_sparse_decode_triton  # SGLang's
    from wavewise.attention import sparse_mla_decode               # our own

Planning needs neither torch nor triton: `plan_decode`. Names are loaded when first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from wavewise.errors import MissingExtraError

if TYPE_CHECKING:
    from wavewise.attention.configurations import Footprint as Footprint
    from wavewise.attention.configurations import KernelConfig as KernelConfig
    from wavewise.attention.configurations import footprints_for as footprints_for
    from wavewise.attention.decode import Workspace as Workspace
    from wavewise.attention.decode import flash_mla_sparse_decode_triton as flash_mla_sparse_decode_triton
    from wavewise.attention.decode import flash_mla_with_kvcache as flash_mla_with_kvcache
    from wavewise.attention.decode import plan_for as plan_for
    from wavewise.attention.decode import sparse_mla_decode as sparse_mla_decode
    from wavewise.attention.plan import DecodePlan as DecodePlan
    from wavewise.attention.plan import DecodeShape as DecodeShape
    from wavewise.attention.plan import plan_decode as plan_decode
    from wavewise.attention.reference import reference_decode as reference_decode

_HOMES = {
    "Footprint": "configurations",
    "KernelConfig": "configurations",
    "footprints_for": "configurations",
    "Workspace": "decode",
    "flash_mla_sparse_decode_triton": "decode",
    "flash_mla_with_kvcache": "decode",
    "plan_for": "decode",
    "sparse_mla_decode": "decode",
    "DecodePlan": "plan",
    "DecodeShape": "plan",
    "plan_decode": "plan",
    "reference_decode": "reference",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'wavewise.attention' has no attribute {name!r}")
    try:
        module = importlib.import_module(f"wavewise.attention.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        if error.name in ("torch", "triton"):
            raise MissingExtraError(
                f"wavewise.attention.{name} needs {error.name}: pip install 'wavewise[kernels]'"
            ) from error
        raise
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
