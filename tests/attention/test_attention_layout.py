"""Layouts: round trips, error bounds, and bytes checked by hand against the layout's definition."""

import math

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from wavewise.attention import layout  # noqa: E402
from wavewise.attention.reference import reference_decode  # noqa: E402
from wavewise.errors import InputError  # noqa: E402

pytestmark = pytest.mark.kernels


def tokens(count: int, seed: int = 0, spread: float = 3.0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn((count, 512), generator=g) * torch.exp(spread * torch.randn((count, 1), generator=g))


@pytest.mark.parametrize(
    ("page_size", "stride"), [(256, 149_760), (64, 37_440), (2, 1_728), (1, 1_152), (3, 2_304)]
)
def test_page_stride_is_rounded_up_to_576(page_size, stride):
    assert layout.page_stride_bytes(page_size) == stride
    assert stride % 576 == 0
    assert 0 <= stride - 584 * page_size < 576


@given(count=st.integers(1, 70), page_size=st.sampled_from([256, 64, 2, 1, 3, 100]), seed=st.integers(0, 99))
@settings(max_examples=30)
def test_pack_and_unpack_are_inverse(count, page_size, seed):
    stored = layout.quantise(tokens(count, seed))
    back = layout.unpack(layout.pack(stored, page_size, fill=0xFF))
    assert torch.equal(back.codes[:count], stored.codes)
    assert torch.equal(back.scale_bytes[:count], stored.scale_bytes)
    assert torch.equal(back.rope[:count].view(torch.int16), stored.rope.view(torch.int16))


def test_bytes_lie_where_the_layout_says():
    page_size, token = 64, 64 + 5  # the sixth token of the second page
    stored = layout.quantise(tokens(130))
    cache = layout.pack(stored, page_size, fill=0xEE)
    raw = cache.as_strided((cache.shape[0] * cache.stride(0),), (1,))
    page = cache.stride(0)
    data = page + 5 * 576
    assert torch.equal(raw[data : data + 448], stored.codes[token])
    assert torch.equal(raw[data + 448 : data + 576].view(torch.bfloat16), stored.rope[token])
    scales = page + 64 * 576 + 5 * 8
    assert torch.equal(raw[scales : scales + 7], stored.scale_bytes[token])
    assert int(raw[scales + 7]) == 0xEE


@given(seed=st.integers(0, 1000), spread=st.floats(0, 8))
@settings(max_examples=40)
def test_quantisation_error_stays_within_half_a_step(seed, spread):
    kv = tokens(9, seed, spread)
    stored = layout.quantise(kv)
    back = layout.dequantise(stored)
    values = kv[:, :448].double()
    # e4m3 has 3 mantissa bits: half a step is 2^-4 of a normal value; below 2^-6 codes are 2^-9 apart.
    scale = torch.exp2(stored.scale_bytes.double() - 127).repeat_interleave(64, dim=1)
    allowed = torch.maximum(values.abs() * 2**-4, scale * 2**-10)
    assert bool(((back[:, :448] - values).abs() <= allowed).all())
    assert bool(((back[:, 448:] - kv[:, 448:].double()).abs() <= kv[:, 448:].double().abs() * 2**-8).all())
    # The scale is the smallest power of two that avoids saturation.
    largest = values.reshape(9, 7, 64).abs().amax(dim=2)
    groups = torch.exp2(stored.scale_bytes.double() - 127)
    assert bool((largest <= 448 * groups).all())
    assert bool((largest > 448 * groups / 2).all())


def test_extremes_and_zeros_quantise_exactly():
    kv = torch.zeros((3, 512))
    kv[0, 0], kv[1, 64] = 448 * 2.0**100, 2.0**-120
    back = layout.dequantise(layout.quantise(kv))
    assert float(back[0, 0]) == 448 * 2.0**100
    assert float(back[1, 64]) == 2.0**-120
    assert bool((back[2] == 0).all())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_not_finite_are_refused(bad):
    kv = torch.zeros((2, 512))
    kv[1, 3] = bad
    with pytest.raises(InputError, match="not finite"):
        layout.quantise(kv)


@given(count=st.integers(1, 40), page_size=st.sampled_from([64, 1, 7]), seed=st.integers(0, 99))
@settings(max_examples=20)
def test_inline_layout_round_trip(count, page_size, seed):
    g = torch.Generator().manual_seed(seed)
    kv = torch.randn((count, 576), generator=g) * 5
    cache = layout.pack_inline(kv, page_size)
    assert cache.shape[1:] == (page_size, 1, 656)
    back = layout.unpack_inline(cache)[:count]
    largest = kv[:, :512].reshape(count, 4, 128).abs().amax(dim=2).repeat_interleave(128, dim=1).double()
    off = (back[:, :512] - kv[:, :512].double()).abs()
    # Half a step of e4m3, and the fp32 rounding of value / scale.
    allowed = kv[:, :512].double().abs() * (2**-4 + 1e-6) + largest / 448 * 2**-10
    assert bool((off <= allowed).all())
    assert torch.equal(back[:, 512:], kv[:, 512:].to(torch.bfloat16).double())
    # By hand: the scale of the first group stands behind the 512 codes.
    scale = cache[0, 0, 0, 512:516].contiguous().view(torch.float32)
    assert float(scale) == pytest.approx(float(kv[0, :128].abs().max()) / 448, rel=1e-6)


def test_a_second_reference_agrees():
    """Scalar loops over one query, with the sink as one more key of value 0."""
    g = torch.Generator().manual_seed(3)
    stored = layout.quantise(torch.randn((20, 512), generator=g))
    cache = layout.pack(stored, 8)
    q = torch.randn((1, 1, 2, 512), generator=g).to(torch.bfloat16)
    indices = torch.tensor([[[3, -1, 17, 3, 9]]], dtype=torch.int32)
    sink = torch.tensor([0.3, -2.0])
    length = torch.tensor([4], dtype=torch.int32)
    out, lse = reference_decode(q, cache, indices, length, sink)
    keys = layout.dequantise(stored)[[3, 17, 3]].tolist()
    for head in range(2):
        row = q[0, 0, head].double().tolist()
        scores = [sum(a * b for a, b in zip(row, key, strict=True)) / math.sqrt(512) for key in keys]
        total = sum(math.exp(s) for s in scores)
        assert float(lse[0, head, 0]) == pytest.approx(math.log(total), abs=1e-12)
        total += math.exp(float(sink[head]))
        weights = [math.exp(s) / total for s in scores]
        for d in (0, 100, 511):
            expected = sum(w * key[d] for w, key in zip(weights, keys, strict=True))
            assert float(out[0, 0, head, d]) == pytest.approx(expected, abs=1e-12)


def test_wrong_shapes_are_refused():
    with pytest.raises(InputError, match="expected"):
        layout.quantise(torch.zeros((2, 576)))
    with pytest.raises(InputError, match="656"):
        layout.unpack_inline(torch.zeros((1, 2, 1, 584), dtype=torch.uint8))
    with pytest.raises(InputError, match="584"):
        layout.unpack(torch.zeros((1, 2, 1, 656), dtype=torch.uint8))
    with pytest.raises(InputError, match="page size 0"):
        layout.page_stride_bytes(0)
