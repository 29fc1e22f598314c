"""On a GPU alone: every shipped kernel over every case, and calls inside a CUDA graph."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU"),
]


def test_every_shipped_kernel_passes_every_case():
    from wavewise.bench.attention import check

    rows = check("cuda")
    assert [row for row in rows if row["faults"]] == []
    assert len(rows) > 500


def test_a_captured_call_follows_lengths_and_indices_that_change_afterwards():
    from wavewise.attention import flash_mla_with_kvcache, reference_decode
    from wavewise.bench.attention_cases import CASES, build, judge

    x = build(CASES[0], 64, "cuda")

    def call():
        return flash_mla_with_kvcache(
            x.q, x.k_cache, None, None, 512, None, None, None, False, True, x.indices, x.attn_sink,
            x.extra_k_cache, x.extra_indices, x.topk_length, x.extra_topk_length,
        )  # fmt: skip

    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = call()
    x.topk_length.copy_(torch.tensor([128, 1, 0]))
    x.extra_topk_length.copy_(torch.tensor([17, 0, 512]))
    x.extra_indices[:, :, ::3] = -1
    graph.replay()
    torch.cuda.synchronize()
    expected = reference_decode(
        x.q, x.k_cache, x.indices, x.topk_length, x.attn_sink, None,
        x.extra_k_cache, x.extra_indices, x.extra_topk_length,
    )  # fmt: skip
    assert judge(out, lse, *expected).faults == ()
