"""How to get a trace out of each engine: for the recorder's errors, and for a recording without one."""

VLLM_PROFILER = (
    """--profiler-config '{"profiler": "torch", "torch_profiler_dir": "/absolute/folder", """
    """"torch_profiler_with_stack": false}'"""
)
"""The flag without which `vllm serve` has no profiler."""

_NSIGHT = (
    "run the server under Nsight Systems (`nsys profile --cuda-graph-trace=node ...`), export the decode steps "
    "with `nsys export --type sqlite`, and analyse that file"
)

_HOW_TO_TRACE = {
    "vllm": f"start `vllm serve` with {VLLM_PROFILER} and record without --no-profile",
    "sglang": "record without --no-profile: SGLang's profiler is started over HTTP",
}


def how_to_trace(engine: str) -> str:
    """What brings a trace of this engine's decode steps."""
    return _HOW_TO_TRACE.get(engine, _NSIGHT)


def profiled_over_http(engine: str) -> bool:
    """Whether a recorder could start this engine's profiler."""
    return engine in _HOW_TO_TRACE
