"""Runs the portable kernels on the CPU, interpreted, over every case; prints verdicts as JSON. A script.

Interpretation is decided when triton is imported, so the tests run this in a process of its own.
"""

import json
import math
import os
import warnings
from dataclasses import replace

os.environ["TRITON_INTERPRET"] = "1"
warnings.filterwarnings("ignore", category=RuntimeWarning)  # log2(0) of empty queries, masked afterwards

import torch  # noqa: E402

from wavewise.attention.configurations import KernelConfig  # noqa: E402
from wavewise.attention.decode import (  # noqa: E402
    Workspace,
    flash_mla_sparse_decode_triton,
    flash_mla_with_kvcache,
    plan_for,
    sparse_mla_decode,
)
from wavewise.attention.launch import Problem, Scope, launch_baseline  # noqa: E402
from wavewise.attention.layout import pack, quantise  # noqa: E402
from wavewise.attention.plan import DecodeShape  # noqa: E402
from wavewise.attention.reference import reference_decode  # noqa: E402
from wavewise.bench.attention_cases import CASES, build, judge  # noqa: E402
from wavewise.errors import InputError  # noqa: E402


def verdict(name, out, lse, expected):
    found = judge(out, lse, *expected, strict=False)
    other = [fault for fault in found.faults if not fault.startswith("relative error")]
    print(json.dumps({"name": name, "error": found.relative_error, "lse": found.lse_error, "faults": other}))


def main() -> None:
    torch.manual_seed(0)
    for spec in CASES:
        small = replace(spec, window=min(spec.window, 24), extra=min(spec.extra, 40))
        for heads, config, splits in (
            (8, KernelConfig("portable", 8, 16, 4, 1), 1),
            (16, KernelConfig("portable", 16, 32, 4, 1), 3),
        ):
            x = build(small, heads, "cpu")
            out = torch.full(tuple(x.q.shape), math.nan, dtype=torch.bfloat16)
            out, lse = sparse_mla_decode(
                x.q, x.k_cache, x.indices, topk_length=x.topk_length, attn_sink=x.attn_sink,
                extra_k_cache=x.extra_k_cache, extra_indices=x.extra_indices,
                extra_topk_length=x.extra_topk_length, config=config, num_splits=splits, out=out,
            )  # fmt: skip
            expected = reference_decode(
                x.q, x.k_cache, x.indices, x.topk_length, x.attn_sink, None,
                x.extra_k_cache, x.extra_indices, x.extra_topk_length,
            )  # fmt: skip
            verdict(f"{spec.name}, {heads} heads, {splits} splits", out, lse, expected)

    x = build(replace(CASES[3], window=40, extra=33), 16, "cpu", seed=5)
    extra = (x.extra_k_cache, x.extra_indices, x.extra_topk_length)
    expected = reference_decode(x.q, x.k_cache, x.indices, x.topk_length, x.attn_sink, None, *extra)
    out, lse = flash_mla_with_kvcache(
        x.q, x.k_cache.view(torch.float8_e4m3fn), None, None, 512, None, None, None, False, True,
        x.indices, x.attn_sink, extra[0].view(torch.float8_e4m3fn), extra[1], x.topk_length, extra[2],
    )  # fmt: skip
    verdict("FlashMLA's face", out, lse, expected)
    plan = plan_for(DecodeShape(3, 16, 40, 33), torch.device("cpu"))
    room = Workspace.for_plan(plan, "cpu")
    out, lse = flash_mla_sparse_decode_triton(
        x.q, x.k_cache, x.indices, x.topk_length, x.attn_sink, 512, None, *extra, workspace=room
    )
    verdict("SGLang's face, own workspace", out, lse, expected)

    flat, flat_lse = torch.full((3, 16, 512), math.nan, dtype=torch.bfloat16), torch.full((3, 16), math.nan)
    scope = Scope(x.k_cache, x.indices, x.topk_length)
    launch_baseline(Problem(x.q, scope, Scope(*extra), x.attn_sink, 512**-0.5), flat, flat_lse)
    verdict("baseline", flat.unsqueeze(1), flat_lse.unsqueeze(2), expected)

    cache = pack(quantise(torch.randn((50, 512))), 16)
    chosen = torch.randint(0, 50, (3, 1, 20), dtype=torch.int32)
    out, lse = sparse_mla_decode(x.q, cache, chosen)
    verdict("no lengths, no sink, one scope", out, lse, reference_decode(x.q, cache, chosen))

    refused = []
    wrong = x.indices.clone()
    wrong[1, 0, 0] = x.k_cache.shape[0] * x.k_cache.shape[1]
    for name, call in {
        "out of range": lambda: sparse_mla_decode(x.q, x.k_cache, wrong, check_indices=True),
        "below -1": lambda: sparse_mla_decode(x.q, x.k_cache, x.indices * 0 - 2, check_indices=True),
        "beyond the length": lambda: sparse_mla_decode(
            x.q, x.k_cache, wrong, topk_length=torch.zeros(3, dtype=torch.int32), check_indices=True
        ),
    }.items():
        try:
            call()
            refused.append(f"{name}: accepted")
        except InputError as error:
            refused.append(f"{name}: {error}")
    print(json.dumps({"refused": refused}))


if __name__ == "__main__":
    main()
