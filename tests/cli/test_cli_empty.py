"""An argument without a character is refused by every command: as a path it would mean the current folder."""

import sys
from pathlib import Path

import msgspec
import pytest

from wavewise.cli.app import main
from wavewise.report.agent.records import Analyse, AskLedger

TRACES = Path(__file__).parents[2] / "examples" / "h200-vllm-llama-recorded"


def ended(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> int:
    monkeypatch.setattr(sys, "argv", ["wavewise", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["analyze", ""], "an argument"),
        (["analyze", "bs1.json.gz", ""], "an argument"),
        (["analyze", "bs1.json.gz", "--out", ""], "--out"),
        (["analyze", "bs1.json.gz", "--json="], "--json"),
        (["analyze", "--telemetry", "", "bs1.json.gz"], "--telemetry"),
        (["diff", "", "bs1.json.gz"], "an argument"),
        (["diff", "bs1.json.gz", "bs8.json.gz", "--markdown", ""], "--markdown"),
        (["export", "", "--csv", "x"], "an argument"),
        (["export", "bs1.json.gz", "--csv", ""], "--csv"),
        (["trim", ""], "an argument"),
        (["scale", ""], "an argument"),
        (["levers", ""], "an argument"),
        (["sweep", ""], "an argument"),
        (["record", "http://127.0.0.1:9", "--out", ""], "--out"),
        (["record", "", "--out", "x"], "an argument"),
        (["record", "http://127.0.0.1:9", "--out", "x", "--trace-dir", ""], "--trace-dir"),
        (["doctor", ""], "an argument"),
    ],
)
def test_an_empty_argument_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], named: str
) -> None:
    monkeypatch.chdir(TRACES)  # the folder that an empty path would have analysed
    before = sorted(TRACES.iterdir())
    assert ended(monkeypatch, words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith(f"wavewise: {named} is empty: ")
    assert sorted(TRACES.iterdir()) == before


def test_the_current_folder_by_its_name_is_analysed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "bs1.json.gz").write_bytes((TRACES / "bs1.json.gz").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert ended(monkeypatch, ["analyze", "."]) == 0
    assert capsys.readouterr().out.startswith("1 trace of vLLM")


@pytest.mark.parametrize(("asked", "kind"), [({"paths": [""]}, Analyse), ({"folder": ""}, AskLedger)])
def test_an_assistant_gets_no_empty_path_either(asked: dict[str, object], kind: type[msgspec.Struct]) -> None:
    with pytest.raises(msgspec.ValidationError, match="length >= 1"):
        msgspec.convert(asked, type=kind)
