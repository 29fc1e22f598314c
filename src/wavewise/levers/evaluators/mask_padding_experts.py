"""Padding tokens of a replayed bucket route like real ones and load experts for nothing."""

from wavewise.levers.catalogue import LeverSpec
from wavewise.levers.judgement import Judgement, nothing, unknown
from wavewise.levers.law import NEEDED, expert_law
from wavewise.levers.recorded import bucket_steps
from wavewise.levers.view import View


def evaluate(view: View, spec: LeverSpec) -> Judgement:
    """Saving = E * (A(bucket) - A(batch)), here or as the mean over all recorded decode steps."""
    if not view.sum_us(spec.families):
        return nothing(f"no MoE GEMM at {view.where}")
    known = view.batch_size is not None and view.bucket is not None and not view.speculates
    here = known and (view.bucket or 0) > (view.batch_size or 0)
    steps = {(view.batch_size or 0, view.bucket or 0): 1} if here else bucket_steps(view)
    if not steps:
        return unknown("decode steps whose batch size and replayed bucket are both known")
    total = sum(steps.values())
    padded = {pair: n for pair, n in steps.items() if pair[1] > pair[0]}
    if not padded:
        return nothing(f"no padding tokens: all {total} recorded decode steps replay their own batch size")
    law = expert_law(view)
    if law is None:
        return unknown(NEEDED)
    extra = sum(n * (law.share(bucket) - law.share(batch)) for (batch, bucket), n in padded.items())
    mean = extra / total
    over = (
        f"batch {view.batch_size} in bucket {view.bucket}"
        if here
        else f"the mean over {total} recorded decode steps, {sum(padded.values())} of them padded"
    )
    return Judgement(
        saving_us=law.all_us * mean,
        basis=f"E x (A(bucket) - A(batch)) = {law.all_us:.1f} us x {mean:.5f}, {over}; E the fitted "
        f"time of all "
        f"experts, A(n) = 1 - (1 - {law.ratio:.5f})^n their active share",
        evidence="padding rows activate experts at the bucket, as the fitted law takes it. Uniform "
        "routing assumed: "
        "padding that repeats one token activates fewer experts",
        confidence="medium" if here else "low",
        families=spec.families,
        spans_batches=not here,
    )
