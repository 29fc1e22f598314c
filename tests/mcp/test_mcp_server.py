"""The MCP server through the official client: tools, schemas, numbers, refusals."""

import sys
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest

pytest.importorskip("mcp", reason="the mcp package is not installed")
from mcp import Client, StdioServerParameters

import wavewise
from wavewise.report.agent import build
from wavewise.report.agent.server import schema
from wavewise.report.agent.tools import TOOLS
from wavewise.report.diff import diff

EXAMPLES = Path(__file__).parents[2] / "examples" / "h200-vllm-dsv4"
MANY = list(range(1, 101))
BS64, LONG = EXAMPLES / "context4k" / "bs064.json.gz", EXAMPLES / "context12k" / "bs064.json.gz"


def call(name: str, **arguments: Any) -> Any:
    """One call through an in-process client; the raw result."""

    async def talk() -> Any:
        async with Client(build()) as client:
            return await client.call_tool(name, arguments)

    return anyio.run(talk)


def answer(name: str, **arguments: Any) -> dict[str, Any]:
    result = call(name, **arguments)
    assert not result.is_error, result.content[0].text
    tool = next(tool for tool in TOOLS if tool.name == name)
    jsonschema.validate(result.structured_content, schema(tool.gives))
    return result.structured_content


def test_lists_the_tools_with_schemas() -> None:
    async def talk() -> Any:
        async with Client(build()) as client:
            return await client.list_tools(), client.instructions

    listed, instructions = anyio.run(talk)
    tools = {tool.name: tool for tool in listed.tools}
    assert set(tools) == {"analyse", "occupancy", "waves", "audit", "plan", "scale", "ledger", "diff"}
    assert "null with a reason" in instructions
    for tool in tools.values():
        assert tool.description.endswith(".")
        assert tool.annotations.read_only_hint
        for wanted in (tool.input_schema, tool.output_schema):
            assert wanted["type"] == "object"
            jsonschema.Draft202012Validator.check_schema(wanted)
        assert all("description" in p or "$ref" in p or "anyOf" in p or "type" in p
                   for p in tool.input_schema["properties"].values())  # fmt: skip


def test_analyse_says_what_the_findings_say() -> None:
    said = answer("analyse", paths=[str(BS64)], max_kernels=3)
    findings = wavewise.analyze([BS64])
    point = said["points"][0]
    assert (point["batch_size"], point["clean_steps"]) == (64, 6)
    assert point["step_ms"]["median"] == findings.operating_points[0].step_ms.median
    families = {row["family"]: row["sum_us_per_step"] for row in point["families"]}
    assert families == {f.family: f.sum_us_per_step for f in findings.operating_points[0].families}
    assert [kernel["name"] for kernel in point["kernels"]] == [k.name for k in findings.traces[0].kernels[:3]]
    trace = said["traces"][0]
    idle = sum(value for key, value in trace["idle"].items() if key.endswith("_ns"))
    assert trace["busy_ns"] + idle == trace["window_ns"]
    assert said["verdict"][0].startswith("At batch 64 a decode step takes 8.30 ms")
    assert not any("`" in line for line in said["verdict"] + said["summary"])


def test_context_labels_reach_the_analysis() -> None:
    said = answer("analyse", paths=[str(BS64), str(LONG)], contexts={str(BS64): "4k", str(LONG): "12k"})
    assert [(point["batch_size"], point["context"]) for point in said["points"]] == [(64, "4k"), (64, "12k")]


def test_occupancy_and_waves_by_hand() -> None:
    # 80,000 B + 1,024 B reserved per CTA: two fit in an H200 SM's 233,472 B; 255 registers x 128 threads, too.
    said = answer(
        "occupancy", gpu="h200", threads=128, registers=255, shared_memory_bytes=80_000, grid="64x2"
    )
    assert (said["ctas_per_sm"], said["warps_per_sm"], said["occupancy"]) == (2, 8, 0.125)
    assert (said["waves"]["ctas"], said["waves"]["slots"], said["waves"]["waves"]) == (128, 264, 1)
    said = answer("waves", grid="B, 2, nsplit", values={"B": [32, 96], "nsplit": [2]}, sm_count=188)
    rows = {row["values"]["B"]: row for row in said["rows"]}
    assert (rows[32]["ctas"], rows[32]["waves"]) == (128, 1)
    assert (rows[96]["ctas"], rows[96]["waves"], rows[96]["tail_ctas"]) == (384, 3, 8)
    assert rows[96]["wave_efficiency"] == pytest.approx(384 / (3 * 188))


def test_plan_is_the_planners_own() -> None:
    plan = pytest.importorskip("wavewise.attention.plan")
    from wavewise.hardware import catalogue

    said = answer("plan", gpu="h200", batch=64, heads=64)
    shape = plan.DecodeShape(batch=64, heads=64, topk=128, extra_topk=512)
    best = plan.plan_decode(shape, None, catalogue(None).find("h200"))
    assert (said["num_splits"], tuple(said["grid"])) == (best.num_splits, best.grid)
    assert said["predicted_us"] == best.predicted_us
    alone = plan.DecodeShape(batch=64, heads=64, topk=512, extra_topk=0)
    best = plan.plan_decode(alone, None, catalogue(None).find("h200"))
    assert answer("plan", gpu="h200", batch=64, window=0)["predicted_us"] == best.predicted_us


def test_scale_gives_floor_slope_and_target() -> None:
    said = answer("scale", paths=[str(EXAMPLES / "context4k")], experts=[256, 6], latency_target_ms=9.0)
    findings = wavewise.analyze([EXAMPLES / "context4k"])
    assert findings.scaling is not None
    assert said["scaling"]["step"]["slope_ms_per_request"] == pytest.approx(
        findings.scaling.step.slope_ms_per_request
    )
    assert said["scaling"]["curve"] == []
    assert said["latency_target"] is not None


def test_ledger_holds_both_sides_of_a_contradiction() -> None:
    said = answer("ledger", lever="mscclpp")
    assert {entry["lever"] for entry in said["entries"]} == {"mscclpp"}
    ids = {entry["id"] for entry in said["entries"]}
    assert said["contradictions"]
    assert set(said["contradictions"][0]["ids"]) <= ids
    assert all(entry["source"] for entry in said["entries"])


def test_diff_with_limits() -> None:
    limit = "decode.64.step_ms > +3%"
    said = answer("diff", before=str(BS64), after=str(LONG), limits=[limit])
    assert said["failed"] is True
    assert said["diff"]["limits"][0]["outcome"] == "exceeded"
    expected = diff(wavewise.analyze([BS64]), wavewise.analyze([LONG]))
    up = {f["family"] for f in said["diff"]["points"][0]["families"] if f["sum_us"]["verdict"] == "up"}
    assert up == {f.family for f in expected.points[0].families if f.sum_us.verdict == "up"}
    assert all(k["sum_us"]["verdict"] not in ("noise", "same") for k in said["diff"]["points"][0]["kernels"])
    assert answer("diff", before=str(BS64), after=str(BS64))["verdict"][0].startswith("No difference")


@pytest.mark.kernels
def test_audit_compiles_without_a_gpu(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    module = tmp_path / "toy.py"
    module.write_text(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
        "def add(x, y, n, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)\n"
    )
    said = answer(
        "audit", kernel=f"{module}:add", gpus=["h200"], signature="*fp32, *fp32, i32",
        constants={"BLOCK": [128, 1024]}, num_warps=[4],
    )  # fmt: skip
    assert len(said["rows"]) == 2
    assert all(row["resources"]["registers_per_thread"] > 0 and row["fits"] for row in said["rows"])


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("nonsense", {}, "no tool 'nonsense'"),
        ("analyse", {"paths": []}, "paths"),
        ("analyse", {"paths": ["/no/such.json"]}, "/no/such.json"),
        ("analyse", {"path": "x"}, "path"),
        ("occupancy", {"gpu": "h200", "threads": 0}, "threads"),
        ("occupancy", {"gpu": "h9000", "threads": 128}, "h9000"),
        ("waves", {"grid": "B", "values": {"B": [1]}}, "gpu"),
        ("waves", {"grid": "B", "values": {"C": [1]}, "gpu": "h200"}, "B"),
        ("waves", {"grid": "A*B", "values": {"A": MANY, "B": MANY}, "gpu": "h200"}, "10,000"),
        ("plan", {"gpu": "h200", "batch": 64, "heads": 7}, "7 query heads"),
        ("ledger", {"lever": "perpetual motion"}, "perpetual motion"),
        ("diff", {"before": str(BS64), "after": str(BS64), "limits": ["x"]}, "--fail-if"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_one_line(name: str, arguments: dict[str, Any], words: str) -> None:
    result = call(name, **arguments)
    assert result.is_error
    assert words in result.content[0].text
    assert "\n" not in result.content[0].text
    assert "Traceback" not in result.content[0].text


def test_speaks_over_stdio() -> None:
    """The command itself: nothing but the protocol may reach stdout."""

    async def talk() -> Any:
        server = StdioServerParameters(
            command=sys.executable, args=["-c", "from wavewise.cli import main; main()", "mcp"]
        )
        async with Client(server) as client:
            listed = await client.list_tools()
            said = await client.call_tool("analyse", {"paths": [str(BS64)], "max_kernels": 0})
            return listed, said

    listed, said = anyio.run(talk)
    assert len(listed.tools) == len(TOOLS)
    assert said.structured_content["points"][0]["batch_size"] == 64
