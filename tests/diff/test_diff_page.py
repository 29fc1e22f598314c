"""The diff's page in a browser: nothing leaves the screen, nothing is cut off, nothing goes wrong."""

from pathlib import Path

import pytest
from diff_recordings import recorded

from report.report_browser import CHROMIUM, Browser
from wavewise.report.diff import diff, render_html

CUT_OFF = """
[...document.querySelectorAll('svg text')].filter(text => {
  const inner = text.getBoundingClientRect(), outer = text.ownerSVGElement.getBoundingClientRect();
  return inner.width && (inner.left < outer.left - 1 || inner.right > outer.right + 1 ||
                         inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1);
}).map(text => text.textContent)
"""
"""Words of charts that reach beyond their chart."""


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_the_screen(tmp_path: Path, width: int) -> None:
    page = tmp_path / "diff.html"
    page.write_text(
        render_html(diff(recorded("context4k/bs064"), recorded("context12k/bs064"))), encoding="utf-8"
    )
    with Browser() as browser:
        browser.open(page, width=width)
        assert browser.evaluate("document.querySelectorAll('svg text').length") > 10
        assert browser.evaluate(CUT_OFF) == []
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.problems() == []
