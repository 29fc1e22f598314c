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


@pytest.mark.parametrize("heads", [8, 16, 64, 128])
def test_both_drop_in_faces_pass_every_case(heads: int):
    from wavewise.attention import flash_mla_sparse_decode_triton, flash_mla_with_kvcache, reference_decode
    from wavewise.bench.attention_cases import CASES, build, judge

    for spec in CASES:
        x = build(spec, heads, "cuda")
        flash = flash_mla_with_kvcache(
            x.q, x.k_cache, None, None, 512, None, None, None, False, True, x.indices, x.attn_sink,
            x.extra_k_cache, x.extra_indices, x.topk_length, x.extra_topk_length,
        )  # fmt: skip
        tiled = flash_mla_sparse_decode_triton(
            x.q, x.k_cache, x.indices, x.topk_length, x.attn_sink, 512, None,
            x.extra_k_cache, x.extra_indices, x.extra_topk_length,
        )  # fmt: skip
        expected = reference_decode(
            x.q, x.k_cache, x.indices, x.topk_length, x.attn_sink, None,
            x.extra_k_cache, x.extra_indices, x.extra_topk_length,
        )  # fmt: skip
        assert judge(*flash, *expected).faults == (), spec.name
        assert judge(*tiled, *expected).faults == (), spec.name


@pytest.mark.parametrize("heads", [16, 64])
def test_lengths_and_sink_may_be_left_out(heads: int):
    from wavewise.attention import reference_decode, sparse_mla_decode
    from wavewise.bench.attention_cases import CASES, build, judge

    x = build(CASES[0], heads, "cuda")
    found = sparse_mla_decode(
        x.q, x.k_cache, x.indices, extra_k_cache=x.extra_k_cache, extra_indices=x.extra_indices
    )
    expected = reference_decode(
        x.q, x.k_cache, x.indices, None, None, None, x.extra_k_cache, x.extra_indices, None
    )
    assert judge(*found, *expected).faults == ()
    alone = sparse_mla_decode(x.q, x.k_cache, x.indices)
    assert judge(*alone, *reference_decode(x.q, x.k_cache, x.indices, None, None, None)).faults == ()


@pytest.mark.parametrize("heads", [16, 32, 64, 128])
@pytest.mark.parametrize("batch", [1, 7, 64, 128])
def test_repeated_calls_agree_to_the_bit(heads: int, batch: int):
    """A missing barrier would show as an answer that moves: the order of all arithmetic is fixed by the plan."""
    from wavewise.attention import sparse_mla_decode
    from wavewise.bench.attention_cases import CaseSpec, build

    x = build(CaseSpec("many", batch=batch, holes=0.1), heads, "cuda")

    def call():
        return sparse_mla_decode(
            x.q, x.k_cache, x.indices, topk_length=x.topk_length, attn_sink=x.attn_sink,
            extra_k_cache=x.extra_k_cache, extra_indices=x.extra_indices, extra_topk_length=x.extra_topk_length,
        )  # fmt: skip

    first, first_lse = (tensor.clone() for tensor in call())
    differing = torch.zeros((), device="cuda", dtype=torch.int64)
    for _ in range(500):
        out, lse = call()
        differing += (out != first).sum() + (lse != first_lse).sum()
    assert int(differing) == 0
