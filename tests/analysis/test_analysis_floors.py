"""What starting up may import, and that the library's names are lazy."""

import subprocess
import sys

HEAVY = ("torch", "triton", "altair", "vl_convert", "scipy", "polars", "numpy", "httpx", "jinja2")


def imported_by(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after running `code`."""
    names = "' '.join(sorted({n.partition('.')[0] for n in sys.modules}))"
    script = f"{code}\nimport sys\nprint({names}, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['wavewise', '--help']\nimport wavewise.cli\n"
        "try: wavewise.cli.main()\nexcept SystemExit: pass"
    )
    assert not imported_by(code) & set(HEAVY)


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert not imported_by("import wavewise") & set(HEAVY)


def test_analysing_never_imports_torch_or_charts() -> None:
    loaded = imported_by("import wavewise; wavewise.analyze; import wavewise.report")
    assert not loaded & {"torch", "triton", "altair", "vl_convert", "httpx"}
