"""The documentation of warnings and the code name the same codes."""

import re
from pathlib import Path

from wavewise.trace.notes import CODES
from wavewise.trace.plausible import REASONS

PAGE = (Path(__file__).parents[2] / "docs" / "warnings.md").read_text()
ROWS = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
DOCUMENTED = set(re.findall(r"`([a-z_0-9]+)`", " ".join(ROWS)))


def test_every_code_of_the_reader_is_documented() -> None:
    assert set(CODES) <= DOCUMENTED
    assert set(REASONS) <= set(CODES)


def test_every_code_of_the_analysis_is_documented() -> None:
    source = (Path(__file__).parents[2] / "src" / "wavewise" / "decode" / "warnings.py").read_text()
    used = set(re.findall(r'code="([a-z_]+)"', source))
    assert used
    assert used <= DOCUMENTED
    assert used | set(CODES) == DOCUMENTED


def test_messages_are_one_sentence_that_formats() -> None:
    for code, (message, unsafe, _) in CODES.items():
        text = message.format(count="1,234")
        assert "{" not in text, code
        assert "\n" not in text, code
        assert set(unsafe) <= {"idle", "steps", "kernels", "occupancy"}, code
