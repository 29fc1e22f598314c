"""Bad input: a clear error of our own, before any launch."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from wavewise.attention import layout  # noqa: E402
from wavewise.attention.decode import (  # noqa: E402
    flash_mla_sparse_decode_triton,
    flash_mla_with_kvcache,
    sparse_mla_decode,
)
from wavewise.errors import InputError, UsageError, WavewiseError  # noqa: E402

pytestmark = pytest.mark.kernels


def good(**changes):
    q = torch.zeros((2, 1, 16, 512), dtype=torch.bfloat16)
    cache = layout.pack(layout.quantise(torch.zeros((130, 512))), 64)
    call = {"q": q, "k_cache": cache, "indices": torch.zeros((2, 1, 8), dtype=torch.int32)}
    return {**call, **changes}


def odd_stride():
    wide = torch.zeros((4, 2 * 584 + 8), dtype=torch.uint8)
    return wide[:, : 2 * 584].view(4, 2, 1, 584)


CASES = {
    "q type": ({"q": torch.zeros((2, 1, 16, 512))}, "q is torch.float32"),
    "q width": ({"q": torch.zeros((2, 1, 16, 576), dtype=torch.bfloat16)}, "heads, 512"),
    "q rank": ({"q": torch.zeros((2, 16, 512), dtype=torch.bfloat16)}, "expected"),
    "heads": (
        {"q": torch.zeros((2, 1, 24, 512), dtype=torch.bfloat16)},
        "24 query heads: supported are 8, 16",
    ),
    "s_q": ({"q": torch.zeros((2, 5, 16, 512), dtype=torch.bfloat16)}, "s_q is 5"),
    "empty": ({"q": torch.zeros((0, 1, 16, 512), dtype=torch.bfloat16)}, "no request"),
    "cache type": ({"k_cache": torch.zeros((3, 64, 1, 584))}, "k_cache is torch.float32"),
    "V3.2 cache": ({"k_cache": torch.zeros((3, 64, 1, 656), dtype=torch.uint8)}, "DeepSeek-V3.2"),
    "page stride": ({"k_cache": odd_stride()}, "page stride of 1176"),
    "cache transposed": (
        {"k_cache": torch.zeros((64, 3, 1, 584), dtype=torch.uint8).transpose(0, 1)},
        "contiguous",
    ),
    "index type": ({"indices": torch.zeros((2, 1, 8), dtype=torch.int64)}, "indices is torch.int64"),
    "index shape": ({"indices": torch.zeros((3, 1, 8), dtype=torch.int32)}, r"expected \[2, 1, topk\]"),
    "index width": ({"indices": torch.zeros((2, 1, 0), dtype=torch.int32)}, "0 wide"),
    "length type": ({"topk_length": torch.zeros(2)}, "topk_length is torch.float32"),
    "length shape": ({"topk_length": torch.zeros(3, dtype=torch.int32)}, r"expected \[2\]"),
    "sink type": ({"attn_sink": torch.zeros(16, dtype=torch.bfloat16)}, "attn_sink is torch.bfloat16"),
    "sink shape": ({"attn_sink": torch.zeros(64)}, r"expected \[16\]"),
    "half a scope": ({"extra_indices": torch.zeros((2, 1, 8), dtype=torch.int32)}, "go together"),
    "stray length": ({"extra_topk_length": torch.zeros(2, dtype=torch.int32)}, "without extra_k_cache"),
}


@pytest.mark.parametrize("name", CASES)
def test_refused_with_a_reason(name):
    changes, said = CASES[name]
    with pytest.raises(WavewiseError, match=said):
        sparse_mla_decode(**good(**changes))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_sound_input_without_a_gpu_says_so():
    with pytest.raises(InputError, match="need an NVIDIA GPU"):
        sparse_mla_decode(**good())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"indices": None}, "dense"),
        ({"causal": True}, "causal"),
        ({"is_fp8_kvcache": False}, "FP8"),
        ({"head_dim_v": 256}, "head_dim_v is 256"),
        ({"num_splits": 4}, "num_splits must be None"),
    ],
)
def test_flashmla_face_refuses_other_modes(change, said):
    x = good()
    call = {
        "q": x["q"], "k_cache": x["k_cache"], "block_table": None, "cache_seqlens": None, "head_dim_v": 512,
        "is_fp8_kvcache": True, "indices": x["indices"],
    }  # fmt: skip
    with pytest.raises(UsageError, match=said):
        flash_mla_with_kvcache(**{**call, **change})


def test_sglang_face_refuses_another_width():
    x = good()
    with pytest.raises(UsageError, match="head_dim_v is 576"):
        flash_mla_sparse_decode_triton(x["q"], x["k_cache"], x["indices"], None, None, 576, None)
