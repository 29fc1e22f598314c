"""Random decode recordings in Kineto's JSON, and what is true of them by plain loops.

Nothing here comes from the product: the recording is played forward on a small model of host and GPU, so that the
truth (who launched what, what was lost, when a step began) is known before a record is written down.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

BASE_NS = 5_121_164_779_381_254
"""A time stamp as long as real ones, so that every digit counts."""

NORM = "void vllm::rms_norm_kernel<c10::BFloat16, 8, 2, true>(c10::BFloat16*, c10::BFloat16 const*, long, float, int)"
GEMM = "nvjet_sm90_tst_64x80_64x11_1x4_h_bz_TNT"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, 1ul> >(int)"
SPLIT = (
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4> >(flash::Flash_fwd_params)"
)
COMBINE = "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64>, 4>(flash::Flash_fwd_params)"
MOE = "void marlin_moe_wna16::Marlin<1125899906909960l, 562949953487106l, 256, 1, 8, 8>(int4 const*, int)"
ACT = "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel>(c10::BFloat16*, c10::BFloat16 const*, int)"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
LOGITS = "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNN"
ARGMAX = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float> > >(float)"


@dataclass
class Op:
    """One GPU operation as it ran."""

    name: str
    kind: str
    device: int
    stream: int
    start: int
    end: int
    correlation: int
    launched: int
    replay: int | None
    grid: tuple[int, int, int] | None
    lost: bool = False


@dataclass
class Call:
    """One host call; `recorded` is False where the file does not hold it."""

    name: str
    start: int
    duration: int
    tid: int
    correlation: int
    recorded: bool = True


@dataclass
class Step:
    """One engine step as the host ran it."""

    kind: str
    batch: int | None
    name: str
    start: int
    end: int = 0
    nested: list[tuple[str, int, int]] = field(default_factory=list)
    bucket: int | None = None


@dataclass
class Node:
    """One operation of a captured graph."""

    name: str
    kind: str
    stream: int
    duration: int
    gap: int
    grid: tuple[int, int, int] | None


@dataclass
class Recording:
    """Everything that happened, and which of it was written down."""

    steps: list[Step]
    ops: list[Op]
    calls: list[Call]
    tid: int
    rocm: bool
    two: bool = False
    cut_start: bool = False


def capture(rng: random.Random, bucket: int, plan: dict[str, int]) -> list[Node]:
    """A graph for a captured size: layers on a main stream with branches on side streams."""
    nodes: list[Node] = []
    streams = [482 + 7 * i for i in range(plan["streams"])]
    for layer in range(plan["layers"]):
        size = 1 + bucket // 16
        nodes += [
            Node(NORM, "kernel", 7, 2_200 + 32 * (layer % 3), 700, (bucket, 1, 1)),
            Node(GEMM, "kernel", 7, 9_600 + 24 * size, 700, (48, 2, 1)),
        ]
        nodes += [
            Node(FILL, "kernel", s, 3_104 + 200 * i, 0, ((bucket + 1) // 2, 1, 1))
            for i, s in enumerate(streams)
            if plan["all_streams"] or i == layer % max(len(streams), 1)
        ]
        nodes += [
            Node(SPLIT, "kernel", 7, 17_408 + 200 * size, 900, (1, 4, bucket)),
            Node(COMBINE, "kernel", 7, 2_016, 640, (4 * bucket, 1, 1)),
            Node(MOE, "kernel", 7, 44_120 + 800 * size, 800, (132, 1, 1)),
            Node(ACT, "kernel", 7, 2_336, 736, (6 * bucket, 1, 1)),
        ]
        if plan["zero"] and layer == 0:
            nodes.append(Node("void noop_kernel()", "kernel", 7, 0, 500, (1, 1, 1)))
    nodes += [
        Node("Memcpy DtoD (Device -> Device)", "memcpy", 7, 1_344, 800, None),
        Node("Memset (Device)", "memset", 7, 832, 800, None),
    ]
    return nodes


class Player:
    """Plays a recording forward on one device."""

    def __init__(
        self, rng: random.Random, device: int, tid: int, correlation: int, plan: dict[str, int]
    ) -> None:
        self.rng, self.device, self.tid, self.plan = rng, device, tid, plan
        self.correlation = correlation
        self.host = BASE_NS
        self.main_free = BASE_NS + plan["lag"]
        self.free: dict[int, int] = {}
        self.ops: list[Op] = []
        self.calls: list[Call] = []
        self.graphs: dict[int, list[Node]] = {}
        self.replays = 0

    def _call(self, name: str, duration: int) -> int:
        self.correlation += self.rng.randint(1, 13)
        self.calls.append(Call(name, self.host, duration, self.tid, self.correlation))
        self.host += duration + self.rng.randint(200, 3_000)
        return self.host

    def eager(self, name: str, duration: int, *, stream: int = 7, kind: str = "kernel", gap: int = 2_000,
              grid: tuple[int, int, int] | None = (64, 1, 1)) -> None:  # fmt: skip
        """One eager operation."""
        prefix = "hip" if self.plan["rocm"] else "cuda"
        call = {"kernel": "LaunchKernel", "memcpy": "MemcpyAsync", "memset": "MemsetAsync"}[kind]
        launched = self.host
        self._call(prefix + call, 4_000)
        free = self.main_free if stream == 7 else self.free.get(stream, 0)
        start = max(free + gap, launched + 5_000)
        self.ops.append(
            Op(
                name,
                kind,
                self.device,
                stream,
                start,
                start + duration,
                self.correlation,
                launched,
                None,
                grid if kind == "kernel" else None,
            )
        )
        if stream == 7:
            self.main_free = start + duration
        else:
            self.free[stream] = start + duration

    def replay(self, bucket: int) -> None:
        """One graph launch."""
        rng, plan = self.rng, self.plan
        if bucket not in self.graphs:
            draft = {"layers": 1, "streams": 0, "zero": 0}
            self.graphs[bucket] = capture(rng, abs(bucket), plan if bucket > 0 else plan | draft)
        launched = self.host
        self._call("hipGraphLaunch" if plan["rocm"] else "cudaGraphLaunch", rng.randint(20_000, 80_000))
        number, self.replays = self.replays, self.replays + 1
        at = max(self.main_free + rng.randint(1_500, 4_000), launched + 30_000)
        previous_start = at
        first = True
        for node in self.graphs[bucket]:
            noise = rng.randint(0, plan["jitter"])
            if node.stream == 7:
                gap = 0 if first else node.gap + rng.randint(0, 600)
                if plan["pdl"] and not first and rng.random() < 0.4:
                    gap = -min(rng.randint(0, 1_200), max(at - previous_start - 1, 0))
                if plan["tight"] and not first and gap > 0:
                    gap = rng.randint(0, 300)
                start = at + gap
                duration = 0 if node.duration == 0 else node.duration + noise
                at, previous_start = max(at, start + duration), start
            else:
                start = max(previous_start + rng.randint(100, 3_000), self.free.get(node.stream, 0))
                duration = node.duration + noise
                self.free[node.stream] = start + duration
            self.ops.append(
                Op(
                    node.name,
                    node.kind,
                    self.device,
                    node.stream,
                    start,
                    start + duration,
                    self.correlation,
                    launched,
                    number,
                    None if plan["rocm"] else node.grid,
                )
            )
            first = False
        if plan["reaching"]:
            start = max(at - 5_000, self.free.get(990, 0))
            self.free[990] = start + plan["reaching"]
            self.ops.append(
                Op(
                    REDUCE,
                    "kernel",
                    self.device,
                    990,
                    start,
                    start + plan["reaching"],
                    self.correlation,
                    launched,
                    number,
                    None if plan["rocm"] else (24, 1, 1),
                )
            )
        self.main_free = at


def marker_name(engine: str, kind: str, batch: int, tokens: int, rng: random.Random) -> tuple[str, list[str]]:
    """The marker of a step in an engine's grammar, and what is nested in it."""
    requests = rng.randint(1, 4)
    if engine in ("sglang", "sglang_nested"):
        name = {
            "decode": f"step[DECODE bs={batch}]",
            "verify": f"step[TARGET_VERIFY bs={batch}]",
            "prefill": f"step[EXTEND bs={requests} toks={tokens}]",
            "mixed": f"step[MIXED bs={batch} toks={tokens}]",
            "idle": "step[IDLE bs=0]",
        }[kind]
        if engine == "sglang":
            return name, []
        a, t, b = {
            "prefill": (requests, tokens, 0),
            "mixed": (requests, tokens, batch),
            "idle": (0, 0, 0),
        }.get(kind, (0, 0, batch))
        return name, [
            f"execute_{t + b}_context_{a}(sq{t}sk{t}sqsq{t}sqsk{t})_generation_{b}(sq{b}sk{b * 1025}sqsq{b}sqsk{b})"
        ]
    if engine == "long":
        a, t, b = {
            "prefill": (requests, tokens, 0),
            "mixed": (requests, tokens, batch),
            "idle": (0, 0, 0),
        }.get(kind, (0, 0, batch))
        return (
            f"execute_{t + b}_context_{a}(sq{t}sk{t}sqsq{t}sqsk{t})_generation_{b}(sq{b}sk{b * 1025}sqsq{b}sqsk{b})",
            [],
        )
    if kind == "verify":
        return f"execute_context_0(0)_generation_{batch}({batch * 4})", []
    if kind == "prefill":
        return f"execute_context_{requests}({tokens})_generation_0(0)", []
    if kind == "mixed":
        return f"execute_context_{requests}({tokens})_generation_{batch}({batch})", []
    if kind == "idle":
        return "execute_context_0(0)_generation_0(0)", []
    return f"execute_context_0(0)_generation_{batch}({batch})", []


BUCKETS = (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 160, 192, 256)


def plan_of(rng: random.Random) -> dict[str, int]:
    """The habits of one recording."""
    return {
        "layers": rng.choice([1, 2, 3, 5]),
        "streams": rng.choice([0, 1, 1, 2, 4, 12]),
        "all_streams": rng.random() < 0.3,
        "jitter": rng.choice([0, 0, 300, 3_000]),
        "pdl": rng.random() < 0.25,
        "tight": rng.random() < 0.15,
        "zero": rng.random() < 0.15,
        "reaching": rng.choice([0, 0, 0, 0, 12_000]),
        "lag": rng.choice([0, 300_000, 2_300_000]),
        "rocm": rng.random() < 0.12,
        "two": rng.random() < 0.12,
        "async": rng.random() < 0.4,
        "pre": rng.choice([0, 0, 1, 2]),
        "tail": rng.choice([0, 0, 1, 3]),
        "tail_after": rng.random() < 0.4,
        "eager_decode": rng.random() < 0.06,
        "boundary": rng.choice([5_000, 60_000, 150_000]),
    }


def program(rng: random.Random) -> list[tuple[str, int, int]]:
    """(kind, batch, pause after) of each step."""
    count = rng.randint(5, 14)
    batch = rng.choice([1, 3, 4, 8, 16, 27, 32, 64, 94, 100, 128])
    steps: list[tuple[str, int, int]] = []
    changing, others, empties = rng.random() < 0.3, rng.random() < 0.3, rng.random() < 0.25
    pauses = rng.choice([0, 0, 0, 1, 2])
    verify = rng.random() < 0.1
    for _ in range(count):
        if changing and rng.random() < 0.25:
            batch = max(1, batch - rng.randint(1, max(1, batch // 3)))
        steps.append(("verify" if verify else "decode", batch, 0))
        if others and rng.random() < 0.2:
            steps.append((rng.choice(["prefill", "mixed"]), batch, 0))
        if empties and rng.random() < 0.2:
            steps += [("idle", 0, 0)] * rng.randint(1, 3)
    if empties and rng.random() < 0.3:
        steps.insert(0, ("idle", 0, 0))
    for _ in range(pauses):
        at = rng.randrange(len(steps))
        kind, size, _ = steps[at]
        steps[at] = (kind, size, rng.choice([500_000, 900_000, 1_300_000, 30_000_000, 10_000_000_000]))
    return steps


def play(
    rng: random.Random, *, engine: str = "vllm", device: int = 0, tid: int = 4100, correlation: int = 1_000,
    plan: dict[str, int] | None = None, steps: list[tuple[str, int, int]] | None = None,
) -> Recording:  # fmt: skip
    """One recording of one device."""
    plan = plan or plan_of(rng)
    steps = steps or program(rng)
    player = Player(rng, device, tid, correlation, plan)
    done: list[Step] = []
    if rng.random() < 0.3:
        player.eager("void warm()", 3_000)
        player.host += 20_000
    for kind, batch, pause in steps:
        name, nested = marker_name(engine, kind, batch, rng.choice([512, 8192]), rng)
        step = Step("decode" if kind == "verify" else kind, batch, name, player.host)
        done.append(step)
        player.host += 2_000
        inner = player.host
        if kind in ("decode", "verify"):
            rows = batch * (4 if kind == "verify" and engine in ("vllm", "long") else 1)
            bucket = next((b for b in BUCKETS if b >= rows), rows)
            for i in range(plan["pre"]):
                player.eager("Memcpy HtoD (Pinned -> Device)", 1_500, kind="memcpy", stream=7 if i else 21)
            if plan["eager_decode"]:
                for node in capture(rng, bucket, plan):
                    player.eager(node.name, node.duration, kind=node.kind, gap=600, grid=node.grid)
            else:
                player.replay(bucket)
                step.bucket = None if plan["rocm"] or kind == "verify" else bucket
                if plan["two"] and plan["layers"] > 1:
                    player.replay(-bucket)
            if not plan["tail_after"]:
                _tail(player, plan)
        elif kind in ("prefill", "mixed"):
            for i in range(rng.randint(8, 40)):
                player.eager(GEMM if i % 2 else NORM, rng.randint(20_000, 90_000), grid=(512, 2, 1))
        step.end = player.host + rng.randint(500, 4_000)
        step.nested = [(text, inner, step.end - 1_000) for text in nested]
        player.host = step.end
        if kind in ("decode", "verify") and plan["tail_after"]:
            _tail(player, plan)
        if plan["async"]:
            player.host += rng.randint(1_000, 20_000)
        else:
            player.host = max(player.host, player.main_free) + plan["boundary"]
        if pause:
            player.host = max(player.host, player.main_free, *player.free.values(), 0) + pause
            if rng.random() < 0.3:
                step.end = player.host - rng.choice([0, pause // 2, 1_000])
    return Recording(done, player.ops, player.calls, tid, bool(plan["rocm"]), bool(plan["two"]))


def _tail(player: Player, plan: dict[str, int]) -> None:
    for i in range(plan["tail"]):
        player.eager(LOGITS if i == 0 else ARGMAX, 3_000 + 2_000 * i)


# --- losing records -------------------------------------------------------------------------------------------


def lose(rng: random.Random, recording: Recording) -> str:
    """Loses records of a recording in one of the ways that profilers have; says which."""
    replays: dict[int, list[Op]] = {}
    for op in recording.ops:
        if op.replay is not None:
            replays.setdefault(op.replay, []).append(op)
    numbers = sorted(replays)
    if len(numbers) < 4:
        return "none"
    how = rng.choice(["first", "middle", "last", "whole", "few", "random", "two", "eager", "head_layers"])
    chosen = rng.sample(numbers, min(len(numbers) // 3, rng.choice([1, 1, 1, 2, 3])))
    if how == "two":
        at = rng.randrange(len(numbers) - 1)
        chosen = numbers[at : at + 2]
    for number in chosen:
        ops = sorted(replays[number], key=lambda op: op.start)
        if how in ("first", "head_layers"):
            for op in ops[: rng.randint(1, len(ops) - 1)]:
                op.lost = True
        elif how == "middle":
            lo = rng.randint(1, len(ops) - 2)
            for op in ops[lo : rng.randint(lo + 1, len(ops) - 1)]:
                op.lost = True
        elif how == "last":
            for op in ops[rng.randint(1, len(ops) - 1) :]:
                op.lost = True
        elif how == "whole":
            for op in ops:
                op.lost = True
        elif how == "few":
            for op in rng.sample(ops, min(len(ops), rng.randint(1, 3))):
                op.lost = True
        elif how == "two":
            keep = rng.randint(0, len(ops) - 1)
            for op in ops[keep:]:
                op.lost = True
    if how == "random":
        for op in recording.ops:
            if rng.random() < 0.02:
                op.lost = True
    if how == "eager":
        eager = [op for op in recording.ops if op.replay is None and op.kind == "kernel"]
        for op in rng.sample(eager, min(len(eager), 2)):
            op.lost = True
    return how


def cut(rng: random.Random, recording: Recording) -> None:
    """Starts or stops the recording in the middle of a replay."""
    starts = sorted(op.start for op in recording.ops)
    if rng.random() < 0.5:
        at = starts[rng.randint(0, len(starts) // 4)]
        # The profiler starts: host records from now on, GPU records of what ends from now on.
        recording.calls = [c for c in recording.calls if c.start >= at]
        recording.steps = [s for s in recording.steps if s.start >= at]
        recording.ops = [op for op in recording.ops if op.end > at]
        recording.cut_start = True
    if rng.random() < 0.5:
        at = starts[-rng.randint(1, len(starts) // 4)]
        recording.calls = [c for c in recording.calls if c.start <= at]
        recording.steps = [s for s in recording.steps if s.start <= at]
        for op in recording.ops:
            op.lost = op.lost or op.end > at
        recording.ops = [op for op in recording.ops if op.launched <= at]


# --- writing --------------------------------------------------------------------------------------------------


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def document(
    recordings: list[Recording],
    *,
    markers: bool = True,
    launches: bool = True,
    gpus: int = 1,
    rank: int | None = None,
) -> str:
    """The Kineto document that holds what was recorded."""
    events: list[str] = []
    for recording in recordings:
        if markers:
            for step in recording.steps:
                for name, start, end in [(step.name, step.start, step.end), *step.nested]:
                    events.append(
                        f'{{"ph":"X","cat":"user_annotation","name":{_quoted(name)},"pid":4100,"tid":{recording.tid},'
                        f'"ts":{_us(start)},"dur":{_us(end - start)},"args":{{"External id":1}}}}'
                    )
                    events.append(
                        f'{{"ph":"X","cat":"gpu_user_annotation","name":{_quoted(name)},"pid":0,"tid":7,'
                        f'"ts":{_us(start + 900_000)},"dur":{_us(end - start)},"args":{{"External id":1}}}}'
                    )
        if launches:
            events += [
                f'{{"ph":"X","cat":"cuda_runtime","name":"{call.name}","pid":4100,"tid":{call.tid},'
                f'"ts":{_us(call.start)},"dur":{_us(call.duration)},'
                f'"args":{{"cbid":211,"correlation":{call.correlation}}}}}'
                for call in recording.calls
                if call.recorded
            ]
        for op in recording.ops:
            if op.lost:
                continue
            category = {"kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}[op.kind]
            shape = (
                ""
                if op.grid is None
                else f',"grid":{list(op.grid)},"block":[128,1,1],"registers per thread":32,"shared memory":0'
            )
            events.append(
                f'{{"ph":"X","cat":"{category}","name":{_quoted(op.name)},"pid":{op.device},"tid":{op.stream},'
                f'"ts":{_us(op.start)},"dur":{_us(op.end - op.start)},"args":{{"device":{op.device},'
                f'"stream":{op.stream},"correlation":{op.correlation}{shape}}}}}'
            )
    properties = ",".join(
        f'{{"id":{i},"name":"NVIDIA H200","totalGlobalMem":150109880320,"computeMajor":9,"computeMinor":0,'
        f'"maxThreadsPerBlock":1024,"maxThreadsPerMultiprocessor":2048,"regsPerBlock":65536,"warpSize":32,'
        f'"sharedMemPerBlock":49152,"numSms":132,"regsPerMultiprocessor":65536,"sharedMemPerBlockOptin":232448,'
        f'"sharedMemPerMultiprocessor":233472}}'
        for i in range(gpus)
    )
    ranked = (
        f'"distributedInfo":{{"backend":"nccl","rank":{rank},"world_size":2}},' if rank is not None else ""
    )
    return (
        f'{{"schemaVersion":1,{ranked}"deviceProperties":[{properties}],"traceEvents":[\n'
        + ",\n".join(events)
        + '],"displayTimeUnit":"ms"}'
    )


# --- truth ----------------------------------------------------------------------------------------------------


def union(intervals: list[tuple[int, int]]) -> int:
    """Union length, one interval at a time."""
    total, reached = 0, None
    for start, end in sorted(intervals):
        if reached is None or start > reached:
            total, reached = total + end - start, end
        elif end > reached:
            total, reached = total + end - reached, end
    return total


def gaps_of(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The gaps between the intervals."""
    found: list[tuple[int, int]] = []
    reached = None
    for start, end in sorted(intervals):
        if reached is not None and start > reached:
            found.append((reached, start))
        reached = end if reached is None else max(reached, end)
    return found


def percentile(values: list[float], share: float) -> float:
    """Linear interpolation between the two nearest order statistics."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


@dataclass
class StepTruth:
    """What is true of one step."""

    kind: str
    batch: int | None
    bucket: int | None
    replays: int
    busy: int
    start: int | None
    end: int | None
    first: int | None
    span: int | None
    clean: bool = False
    why: str = ""
    ops: list[Op] = field(default_factory=list)


@dataclass
class Truth:
    """What is true of a device's recording."""

    window: int
    busy: int
    total: int
    idle: Counter[str]
    steps: list[StepTruth]
    losses: bool
    intervals: list[tuple[int, int]]


def truth_of(recording: Recording) -> Truth:
    """The truth by the contract's sentences, a loop at a time."""
    seen = [op for op in recording.ops if not op.lost]
    intervals = [(op.start, op.end) for op in seen]
    lo, hi = min(s for s, _ in intervals), max(e for _, e in intervals)
    steps: list[StepTruth] = []
    launched_here = {c.correlation for c in recording.calls}
    owner: dict[int, int] = {}
    for op in recording.ops:
        mine = -1
        if op.correlation in launched_here:
            for i, step in enumerate(recording.steps):
                if step.start <= op.launched:
                    mine = i
        owner[id(op)] = mine
    for i, step in enumerate(recording.steps):
        all_ops = [op for op in recording.ops if owner[id(op)] == i]
        ops = [op for op in all_ops if not op.lost]
        in_replay = [op for op in ops if op.replay is not None]
        spans: list[tuple[int, int]] = []
        for number in {op.replay for op in in_replay}:
            members = [op for op in in_replay if op.replay == number]
            spans.append((min(op.start for op in members), max(op.end for op in members)))
        pool = in_replay or ops
        steps.append(
            StepTruth(
                kind=step.kind,
                batch=step.batch,
                bucket=step.bucket,
                replays=len({op.replay for op in all_ops if op.replay is not None}),
                busy=union([(op.start, op.end) for op in ops]),
                start=min((op.start for op in ops), default=None),
                end=max((op.end for op in ops), default=None),
                first=min((op.start for op in pool), default=None),
                span=union(spans) if spans else None,
                ops=all_ops,
            )
        )
    idle, burst_spots = _idle(recording, seen, steps)
    _judge(steps, burst_spots)
    losses = any(op.lost for op in recording.ops)
    return Truth(hi - lo, union(intervals), sum(e - s for s, e in intervals), idle, steps, losses, intervals)


def _idle(recording: Recording, seen: list[Op], steps: list[StepTruth]) -> tuple[Counter[str], list[int]]:
    spans: list[tuple[int, int]] = []
    for number in {op.correlation for op in seen if op.replay is not None}:
        members = [op for op in seen if op.correlation == number]
        spans.append((min(op.start for op in members), max(op.end for op in members)))
    inner = [
        (s.start, s.end)
        for s in steps
        if s.start is not None and s.end is not None and (s.kind != "decode" or not s.replays)
    ]
    idle: Counter[str] = Counter()
    boundary: list[tuple[int, int]] = []
    for lo, hi in gaps_of([(op.start, op.end) for op in seen]):
        if any(s <= lo and hi <= e for s, e in spans):
            idle["intra_replay"] += hi - lo
        elif any(s <= lo and hi <= e for s, e in inner):
            idle["intra_step"] += hi - lo
        else:
            boundary.append((lo, hi))
    per_boundary: dict[int, int] = {}
    firsts = sorted(s.first for s in steps if s.first is not None)
    for lo, hi in boundary:
        at = sum(f <= lo for f in firsts)
        per_boundary[at] = max(per_boundary.get(at, 0), hi - lo)
    usual = percentile([float(x) for x in per_boundary.values()], 0.5) if per_boundary else 0.0
    spots: list[int] = []
    for lo, hi in boundary:
        free = hi - lo
        if hi - lo > 1_000_000 and hi - lo > 3 * usual:
            covered = union(
                [(max(lo, s.start), min(hi, s.end)) for s in recording.steps if s.start < hi and s.end > lo]
            )
            free = hi - lo - covered
            if free > 0:
                spots.append(lo)
                idle["inter_burst"] += free
                idle["step_boundary"] += covered
                continue
        idle["step_boundary"] += hi - lo
    return idle, spots


def _judge(steps: list[StepTruth], bursts: list[int]) -> None:
    for i, step in enumerate(steps):
        step.why = _why(steps, i, bursts)
        step.clean = not step.why


def _first_is_lost(step: StepTruth) -> bool:
    replays = [op.replay for op in step.ops if op.replay is not None]
    pool = [op for op in step.ops if op.replay == min(replays)] if replays else step.ops
    return bool(pool) and min(pool, key=lambda op: op.start).lost


def _why(steps: list[StepTruth], i: int, bursts: list[int]) -> str:
    step = steps[i]
    if step.kind != "decode":
        return "not decode"
    if any(op.lost for op in step.ops):
        return "lost"
    if i == 0 or i == len(steps) - 1:
        return "edge"
    for other in (steps[i - 1], steps[i + 1]):
        if other.kind != "decode" or other.batch != step.batch:
            return "neighbour"
        if not other.ops:
            return "empty neighbour"
    if _first_is_lost(steps[i + 1]):
        return "next first lost"
    following = steps[i + 1].first
    if step.first is None or following is None or following <= step.first:
        return "no time"
    if any(step.first <= at < following for at in bursts):
        return "burst"
    return ""
