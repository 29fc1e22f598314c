"""The documentation site: builds without a warning, loads nothing from elsewhere, names every command and page."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

pytest.importorskip("mkdocs", reason="mkdocs is not installed")

ROOT = Path(__file__).parents[2]
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Tags whose attribute a browser fetches by itself; <a href> it does not."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Loads(HTMLParser):
    """Collects what a page makes a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        url = given.get(LOADING.get(tag, ""))
        if url and not (tag == "link" and given.get("rel") in ("canonical", "prev", "next")):
            self.urls.append(url)


def test_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 8
    for page in pages:
        parser = Loads()
        parser.feed(page.read_text(encoding="utf-8"))
        assert parser.urls, page
        for url in parser.urls:
            assert not re.match(r"(https?:)?//", url), f"{page.name} loads {url}"
            base = (
                site if url.startswith("/") else page.parent
            )  # 404.html is served from any depth: site-absolute
            assert url.startswith("data:") or (base / url.split("?")[0].lstrip("/")).resolve().exists(), url
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(https?:)?//|@import", style.read_text(encoding="utf-8")), style


def test_every_page_is_in_the_navigation() -> None:
    class Loader(yaml.SafeLoader):
        """mkdocs.yml may name Python objects; their values do not matter here."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)["nav"]

    def files(entry: object) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        children = entry.values() if isinstance(entry, dict) else entry
        return [file for child in children for file in files(child)]

    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert set(files(nav)) == there


def test_every_command_has_a_page() -> None:
    from wavewise.cli.app import COMMANDS

    there = {path.stem for path in (ROOT / "docs" / "commands").glob("*.md")}
    built = {name for name in COMMANDS if (ROOT / "src" / "wavewise" / "cli" / f"{name}.py").exists()}
    assert {name.replace("_", "-") for name in built} <= there
