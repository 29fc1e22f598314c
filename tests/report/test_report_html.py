"""The page: self-contained, well-formed, safe with hostile names, small, and usable in a browser offline."""

from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
import report_builder as build
from report_browser import CHROMIUM, Browser

from wavewise.findings import Findings
from wavewise.report import render_html
from wavewise.report.charts import CHARTS
from wavewise.report.compose import compose
from wavewise.report.glossary import glossary

MOST_BYTES = 3_000_000

VOID = {"meta", "link", "input", "br", "img", "hr"}


class Page(HTMLParser):
    """Reads the page strictly: every element closed, and what it refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.loads: list[str] = []
        self.scripts = 0
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts += 1
        if values.get("id"):
            self.ids.append(values["id"] or "")
        for name in ("aria-labelledby", "aria-describedby"):
            self.references += (values.get(name) or "").split()
        for name in ("src", "href", "data", "action", "srcset"):
            value = values.get(name)
            if value is None:
                continue
            if value.startswith("#"):
                self.references.append(value[1:])
            else:
                self.loads.append(value)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"stray </{tag}>"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.texts.append(data)


@pytest.fixture(scope="module")
def page_text() -> str:
    return render_html(build.sweep_findings())


def test_the_page_is_well_formed_and_refers_only_to_itself(page_text: str) -> None:
    page = Page(page_text)
    assert page.open == []
    assert page.loads == []
    assert not set(page.references) - set(page.ids)
    assert [name for name, count in Counter(page.ids).items() if count > 1] == []
    assert "default-src 'none'" in page_text


def test_the_page_says_what_the_report_says(page_text: str) -> None:
    shown = " ".join(" ".join(Page(page_text).texts).replace("\N{NO-BREAK SPACE}", " ").split())
    report = compose(build.sweep_findings())
    for section in report.sections:
        assert section.title in shown
        for table in section.tables:
            assert f"table-{table.name}" in page_text
            for column in table.columns:
                assert column.title in shown
    for meaning in glossary().values():
        assert meaning in shown


def test_the_page_is_small_even_for_a_hundred_thousand_operations() -> None:
    findings = build.sweep_findings(operations=100_000)
    trace = findings.traces[4]
    row = trace.kernels[0]
    many = tuple(
        msgspec.structs.replace(row, name=f"void kernel_{index}<{index}, float>(float const*, float*)")
        for index in range(5000)
    )
    traces = list(findings.traces)
    traces[4] = msgspec.structs.replace(trace, kernels=many)
    text = render_html(msgspec.structs.replace(findings, traces=tuple(traces)))
    assert len(text.encode()) < MOST_BYTES
    assert "cheapest rows are left to findings.json" in text


def test_hostile_names_stay_text() -> None:
    attack = '</script><script>alert("x")</script><img src=x onerror=alert(1)>`"\' --><!--'
    trace = build.trace(64)
    kernels = tuple(msgspec.structs.replace(kernel, name=attack) for kernel in trace.kernels)
    timeline = build.timeline(64)
    timeline = msgspec.structs.replace(timeline, names=(attack,) * len(timeline.names))
    row = msgspec.structs.replace(trace.decode[0], timeline=timeline)
    trace = msgspec.structs.replace(
        trace,
        path=attack,
        kernels=kernels,
        decode=(row,),
        gpu=msgspec.structs.replace(trace.gpu, name=attack),
    )
    text = render_html(Findings(traces=(trace,), operating_points=(build.point(64, 0),)))
    plain = Page(text)
    assert plain.open == []
    assert plain.loads == []
    assert plain.scripts == Page(render_html(build.sweep_findings())).scripts


def test_no_clean_step_still_makes_a_page() -> None:
    page = Page(render_html(build.no_decode_findings()))
    assert page.open == []
    assert "falling-bucket096" in " ".join(page.texts)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_works_in_a_browser_without_network(
    page_text: str, tmp_path: Path, width: int, dark: bool
) -> None:
    path = tmp_path / "report.html"
    path.write_text(page_text, "utf-8")
    with Browser() as browser:
        browser.open(path, width, dark=dark)
        plots = browser.evaluate("document.querySelectorAll('.plot').length")
        assert plots == len(CHARTS)
        assert browser.evaluate("document.querySelectorAll('.plot[data-drawn] svg').length") == plots
        _fits(browser, width)
        _sorts(browser)
        _filters(browser)
        _toggles(browser)
        _zooms(browser)
        _explains(browser)
        assert browser.problems() == []


def _fits(browser: Browser, width: int) -> None:
    """Nothing pokes out of the page, and no drawing out of its frame."""
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(
        "[...document.querySelectorAll('.plot')].every(p => p.querySelector('svg').getBoundingClientRect()"
        ".width <= p.getBoundingClientRect().width + 1)"
    )


def _column(browser: Browser, index: int) -> list[str]:
    return browser.evaluate(
        f"[...document.querySelectorAll('#table-kernels tbody tr')].map(r => r.cells[{index}].dataset.sort)"
    )


def _sorts(browser: Browser) -> None:
    press = "document.querySelectorAll('#table-kernels .sort')[9].click()"  # shared memory: some not measured
    for sign in (-1, 1):
        browser.evaluate(press)
        shown = _column(browser, 9)
        known = [float(value) for value in shown if value]
        assert len(known) < len(shown)
        assert shown[len(known) :] == [""] * (len(shown) - len(known))
        assert known == sorted(known, key=lambda value: sign * value)
    state = "document.querySelectorAll('#table-kernels th')[9].getAttribute('aria-sort')"
    assert browser.evaluate(state) == "ascending"


def _filters(browser: Browser) -> None:
    def filtered(words: str) -> int:
        return browser.evaluate(
            "(() => { const input = document.querySelector('[data-filter=kernels]'); "
            f"input.value = {words!r}; input.dispatchEvent(new Event('input')); "
            "return document.querySelectorAll('#table-kernels tbody tr:not([hidden])').length; })()"
        )

    assert filtered("marlin batch") == 6
    assert browser.evaluate("document.querySelector('[data-count=kernels]').textContent") == "6 of 36 rows"
    assert filtered("int4 const") == 6  # the full name, which the cell shows on hover
    assert filtered("no such kernel") == 0
    assert filtered("") == 36


def _toggles(browser: Browser) -> None:
    bars = "document.querySelectorAll('.plot[data-chart=families] svg path[aria-roledescription=bar]').length"
    before = browser.evaluate(bars)
    chip = "document.querySelector('.chip[data-chart=families][data-series=\"MoE GEMM\"]')"
    browser.evaluate(f"{chip}.click()")
    browser.wait(f"{bars} === {before - 6}")
    assert browser.evaluate(f"{chip}.getAttribute('aria-pressed')") == "false"
    browser.evaluate(f"{chip}.focus(), {chip}.click()")
    browser.wait(f"{bars} === {before}")


def _zooms(browser: Browser) -> None:
    ticks = (
        "[...document.querySelectorAll('.plot[data-chart=timeline] .role-axis-label text')]"
        ".map(t => t.textContent).sort().join()"
    )
    whole = browser.evaluate(ticks)
    browser.evaluate("document.querySelector('[data-zoom=in]').click()")
    browser.wait(f"{ticks} !== {whole!r}")
    browser.evaluate("document.querySelector('[data-zoom=all]').click()")
    browser.wait(f"{ticks} === {whole!r}")


def _explains(browser: Browser) -> None:
    browser.evaluate("document.querySelector('a.term[data-term=\"clean step\"]').focus()")
    assert browser.evaluate("!document.getElementById('tip').hidden")
    assert browser.evaluate("document.getElementById('tip').textContent") == glossary()["clean step"]
    browser.wait(  # the page scrolls to what gets the focus, and the tip goes with it
        "(() => { const b = document.getElementById('tip').getBoundingClientRect(); "
        "return b.left >= 0 && b.right <= innerWidth && b.top >= 0 && b.bottom <= innerHeight; })()"
    )
