"""Whatever the figures: no exception, no warning, no NaN; and the accounts hold."""

import json
import warnings

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from scaling_points import point

from wavewise.ceilings import ceilings, load_shape, what_ifs
from wavewise.findings import ExpertShape, OperatingPoint
from wavewise.hardware import GpuSpec
from wavewise.report import ceilings_text, scaling_text
from wavewise.scaling import fit_context, latency_target, premise, scaling_model, sweeps, throughput_target

GPU = GpuSpec(id="g", name="g", vendor="x", memory_bytes_per_s=4.8e12, tensor_flops={"bf16": 989e12})
FAMILIES = ("moe_gemm", "attention_split", "dense_gemm", "indexer", "other", "norm")
DURATION = st.one_of(st.just(0.0), st.floats(0.0, 1e-3), st.floats(0.0, 50.0))


@st.composite
def operating_points(draw: st.DrawFn) -> list[OperatingPoint]:
    sizes = draw(st.lists(st.integers(1, 4096), min_size=1, max_size=7, unique=True))
    found = []
    for size in sizes:
        steps = draw(st.integers(1, 5))
        names = draw(st.lists(st.sampled_from(FAMILIES), min_size=0, max_size=4, unique=True))
        families = {name: draw(st.lists(DURATION, min_size=steps, max_size=steps)) for name in names}
        host = draw(st.lists(st.floats(0.001, 30.0), min_size=steps, max_size=steps))
        total = [sum(values[i] for values in families.values()) for i in range(steps)]
        found.append(
            point(
                size,
                families,
                [a + b for a, b in zip(total, host, strict=True)],
                context=draw(st.sampled_from([None, 4096, 12288])),
                bucket=draw(st.sampled_from([None, size, size + 7])),
                tokens=draw(st.sampled_from([None, 1.5 * size])),
                exclusive=dict.fromkeys(names, 0.0) if draw(st.booleans()) else None,
            )
        )
    return found


@given(points=operating_points(), experts=st.sampled_from([None, ExpertShape(experts=256, active=6)]))
@settings(max_examples=150)
def test_nothing_breaks(points: list[OperatingPoint], experts: ExpertShape | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answers: list[object] = [*fit_context(points)]
        limits = ceilings(points, load_shape("deepseek-v4-flash"), GPU)
        answers += [limits, what_ifs(points, load_shape("deepseek-v4-flash"), GPU)]
        for sweep in sweeps(points):
            model, reason = scaling_model(sweep, expert=experts, extrapolate=[1, 33, 5000])
            assert (model is None) != (reason is None)
            answers.append(throughput_target(model, sweep, 1234.0, limits))
            if model is None:
                continue
            answers += [model.scaling, premise(model.scaling, sweep), latency_target(model, 12.0)]
            families = sum(fit.slope_ms_per_request or 0.0 for fit in model.scaling.families)
            step = model.scaling.step.slope_ms_per_request or 0.0
            rest = model.scaling.unattributed_slope_ms_per_request or 0.0
            overlap = model.scaling.overlap_slope_ms_per_request or 0.0
            assert abs(families - overlap + rest - step) <= 1e-9 * (1.0 + abs(step) + abs(families))
    text = msgspec.json.encode(answers)
    json.loads(text, parse_constant=lambda name: (_ for _ in ()).throw(AssertionError(name)))


@given(points=operating_points())
@settings(max_examples=40)
def test_every_section_renders(points: list[OperatingPoint]) -> None:
    from wavewise.findings import Findings

    sweep = sweeps(points)[0]
    model, reason = scaling_model(sweep, extrapolate=[3])
    found = Findings(
        traces=(),
        operating_points=tuple(points),
        scaling=model.scaling if model else None,
        scaling_reason=reason,
        premise=premise(model.scaling, sweep) if model else None,
        latency_target=latency_target(model, 12.0) if model else None,
        throughput_target=throughput_target(model, sweep, 99.0),
        context_scaling=fit_context(points),
        ceilings=ceilings(points) or None,
        what_ifs=what_ifs(points) or None,
    )
    for section in (*scaling_text.sections(found), *ceilings_text.sections(found)):
        assert all(sentence and "nan" not in sentence.split() for sentence in section.sentences)
