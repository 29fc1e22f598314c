"""Loads the audit's zoo on a real GPU: what the driver says of the same kernels that the audit compiles offline.

    python benchmarks/occupancy_audit.py --out results.json      # on the GPU, with torch and triton

For each kernel and configuration: registers and local memory as the loaded function has them, shared memory,
and the driver's `cuOccupancyMaxActiveBlocksPerMultiprocessor`. tests/audit/test_audit_device.py compares the
audit with it, under the same Triton version, and residency always.
"""

import argparse
import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LOCAL_SIZE_BYTES, SHARED_SIZE_BYTES, NUM_REGS = 3, 1, 4  # enum CUfunction_attribute
ODD = 1_000_007  # neither 1 nor a multiple of 16: Triton specialises on neither


def cases() -> list[tuple[str, str, dict[str, Any]]]:
    """(kernel, signature, constants and options), the same that the test audits."""
    attention = "*bf16, *bf16, *i32, *bf16, *fp32, fp32, i32"
    made: list[tuple[str, str, dict[str, Any]]] = [
        ("scale_add", "*bf16, *bf16, *bf16, i32, fp32", {"BLOCK": block, "num_warps": warps})
        for block in (256, 1024)
        for warps in (1, 4)
    ]
    made += [
        ("gemv", "*bf16, *bf16, *fp32, i32, i32", {"BLOCK_M": rows, "num_warps": warps})
        for rows in (16, 64)
        for warps in (4, 8)
    ]
    made += [
        (
            "tiled_sparse_decode",
            attention,
            {"H": 64, "D": 512, "BLOCK_H": heads, "BLOCK_T": tokens, "num_stages": stages},
        )
        for heads in (16, 64)
        for tokens in (16, 32)
        for stages in (1, 2)
    ]
    return made


def measured(case: tuple[str, str, dict[str, Any]], driver: Any) -> dict[str, Any]:
    import audit_zoo
    import torch

    name, signature, config = case
    types = {"bf16": torch.bfloat16, "fp32": torch.float32, "i32": torch.int32}
    arguments: list[Any] = []
    for word in signature.split(", "):
        if word.startswith("*"):
            arguments.append(torch.zeros(64, dtype=types[word[1:]], device="cuda"))
        else:
            arguments.append(ODD if word == "i32" else 0.5)
    compiled = getattr(audit_zoo, name).warmup(*arguments, grid=(1,), **config)
    compiled._init_handles()
    function = ctypes.c_void_p(compiled.function)

    def attribute(which: int) -> int:
        value = ctypes.c_int()
        if driver.cuFuncGetAttribute(ctypes.byref(value), ctypes.c_int(which), function):
            raise RuntimeError(f"cuFuncGetAttribute {which}")
        return value.value

    threads, shared = 32 * compiled.metadata.num_warps, compiled.metadata.shared
    ctas = ctypes.c_int(-1)
    if driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        ctypes.byref(ctas), function, ctypes.c_int(threads), ctypes.c_size_t(shared)
    ):
        raise RuntimeError("cuOccupancyMaxActiveBlocksPerMultiprocessor")
    return {
        "kernel": name,
        "signature": signature,
        "config": config,
        "threads": threads,
        "registers": attribute(NUM_REGS),
        "local_bytes": attribute(LOCAL_SIZE_BYTES),
        "shared": shared + attribute(SHARED_SIZE_BYTES),
        "ctas_per_sm": ctas.value,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args()
    import torch
    import triton

    sys.path.insert(0, str(HERE.parent / "tests" / "audit"))
    driver = ctypes.CDLL("libcuda.so.1")
    torch.zeros(1, device="cuda")
    rows = [measured(case, driver) for case in cases()]
    origin = {
        "gpu": torch.cuda.get_device_name(0),
        "l2_bytes": torch.cuda.get_device_properties(0).L2_cache_size,
        "triton": triton.__version__,
        "torch": torch.__version__,
        "commit": options.commit,
        "measured": time.strftime("%Y-%m-%d"),
    }
    options.out.write_text(json.dumps({"origin": origin, "rows": rows}, indent=1) + "\n")
    print(json.dumps(origin))
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
