"""Host-bound step boundaries: the GPU waits while the host samples, schedules and copies inputs."""

from wavewise.levers.catalogue import LeverSpec
from wavewise.levers.judgement import Judgement, nothing, unknown
from wavewise.levers.view import View


def evaluate(view: View, spec: LeverSpec) -> Judgement:
    """Saving = min(GPU time of the step, host time of its boundary) - one launch.

    Now the step is their sum, GPU + boundary. With the host a step ahead it is the longer of the two, plus
    the launch that remains.
    """
    if view.boundary_us is None:
        return unknown("step boundaries of clean steps that follow one another")
    host = view.boundary_us
    gpu = view.step_us - host
    launch = view.launch_us if view.launch_us is not None else spec.number("launch_us")
    saving = min(gpu, host) - launch
    if saving <= 0.0:
        return nothing(f"the step boundary ({host:.1f} us) is no longer than a launch ({launch:.1f} us)")
    which = "the GPU's time then binds" if gpu >= host else "the host's time then binds"
    return Judgement(
        saving_us=saving,
        upper_bound_us=host,
        basis=f"step {view.step_us:.1f} us = {gpu:.1f} us GPU + {host:.1f} us boundary; overlapped "
        f"max({gpu:.1f}, {host:.1f}) + {launch:.1f} us launch"
        f"{'' if view.launch_us is not None else ' (assumed)'}: {which}. "
        "Recorded under a profiler, which slows the host",
        evidence=f"the GPU waits {host:.1f} us per step between replays "
        f"({100 * host / view.step_us:.0f} % of step "
        f"time, median of {view.clean_steps} clean steps). A profiler slows the host: compare with "
        f"un-profiled step time",
        confidence="medium",
    )
