"""What a lever could at most have bought: its families' share of the step, and no more."""

from wavewise.findings import TriedLever
from wavewise.levers.catalogue import LeverSpec
from wavewise.levers.view import View
from wavewise.units import format_share

_WORDS = {
    "all_reduce": "all-reduce",
    "collective_other": "other communication",
    "moe_gemm": "MoE GEMM",
    "dense_gemm": "dense GEMM",
    "attention_split": "split attention",
    "attention_combine": "attention combine",
    "attention_schedule": "attention schedule metadata",
    "elementwise": "element-wise",
    "residual_mix": "residual mixing",
    "kv_cache": "KV-cache store",
    "kv_compress": "KV compression",
    "moe_route": "MoE routing",
}
_COMMUNICATION = frozenset({"all_reduce", "collective_other"})


def tried_lever(spec: LeverSpec, view: View, name: str) -> TriedLever:
    """Bounds the lever by the share of what it acts on, at `view`."""
    if spec.acts_on == "host":
        return _host(spec, view, name)
    if spec.acts_on == "step":
        return TriedLever(
            name=name,
            families=(),
            batch_size=view.batch_size,
            share=None,
            basis="step",
            at_most_speedup=None,
            sentence=f"{name} acts on the whole step: no family's share bounds it",
            reason="it does not act on one kernel family",
        )
    present = tuple(f for f in spec.families if f in view.families)
    subject = _subject(spec.families)
    of_busy = sum(view.families[f].share_of_busy for f in present)
    sentence = (
        f"{subject} is {{share}} of the step at {view.where} ({format_share(of_busy)} of the replay's "
        f"busy time)"
        if present
        else f"there is no {subject} in the replay at {view.where}"
    )
    return _bounded(name, spec.families, view, of_busy * view.busy_us / view.step_us, sentence)


def _host(spec: LeverSpec, view: View, name: str) -> TriedLever:
    """Host levers: the step boundary and the gaps inside the replay are all the GPU ever waits for."""
    waiting = max(0.0, view.span_us - view.busy_us)
    if view.boundary_us is None:
        return TriedLever(
            name=name,
            families=(),
            batch_size=view.batch_size,
            share=None,
            basis="step",
            at_most_speedup=None,
            sentence=f"{name}: the step boundary was not measured at {view.where}",
            reason="no clean steps follow one another",
        )
    if spec.id == "cuda-graphs":
        if view.replayed:
            return _bounded(
                name,
                (),
                view,
                waiting / view.step_us,
                f"graphs are replayed already; the gaps inside the replay are {{share}} of the step at "
                f"{view.where}",
            )
        return _bounded(
            name, (), view, view.idle_share, f"the GPU waits {{share}} of the step at {view.where}, ungraphed"
        )
    return _bounded(
        name,
        (),
        view,
        view.boundary_us / view.step_us,
        f"host time at step boundaries is {{share}} of the step at {view.where}",
    )


def _bounded(name: str, families: tuple[str, ...], view: View, share: float, sentence: str) -> TriedLever:
    speedup = 1.0 / (1.0 - share) if share < 1.0 else None
    bound = f"at most {speedup:.2f}x" if speedup is not None else "no bound"
    return TriedLever(
        name=name,
        families=families,
        batch_size=view.batch_size,
        share=share,
        basis="step",
        at_most_speedup=speedup,
        sentence=f"{sentence.replace('{share}', format_share(share))}: {bound}",
    )


def _subject(families: tuple[str, ...]) -> str:
    if frozenset(families) == _COMMUNICATION:
        return "communication"
    return " + ".join(_WORDS.get(f, f.replace("_", " ")) for f in families)
