"""Record the decode kernels and their peers on a GPU: correctness first, then times.

    python benchmarks/attention.py --out FILE [--sweep] [--batch 1,8,64] [--heads 64,16] [--commit HASH]

FlashMLA (`vllm.third_party.flashmla`) and SGLang's kernel (`sglang_tiled`) take part where they can be imported.
Writes the results with all samples; exits with 1, without timing anything, where a check is red.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from wavewise.bench.attention import BATCHES, HEADS, SCOPES, Settings, check, measure
from wavewise.bench.attention_table import table


def commit() -> str | None:
    """The commit of the working tree, where git can tell."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def numbers(text: str) -> tuple[int, ...]:
    """A list such as 1,8,64 as numbers."""
    return tuple(int(part) for part in text.split(","))


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sweep", action="store_true", help="all configurations and several split counts")
    parser.add_argument("--batch", type=numbers, default=BATCHES)
    parser.add_argument("--heads", type=numbers, default=HEADS)
    parser.add_argument(
        "--no-check", action="store_true", help="times only: rows are still checked one by one"
    )
    parser.add_argument("--part", help="check every so manieth configuration, 0/4, and time nothing")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--commit", help="recorded in the results; default: git's")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/")) if given.part else (0, 1)
    checks = [] if given.no_check else check("cuda", part=part, parts=parts)
    red = [row for row in checks if row["faults"]]
    for row in red:
        print("RED", json.dumps(row), flush=True)
    if checks:
        worst = max(row["relative_error"] for row in checks)
        print(f"{len(checks)} checks, {len(red)} red, largest relative error {worst:.2e}", flush=True)
    if red:
        given.out.write_text(json.dumps({"checks": checks}, indent=1) + "\n", encoding="utf-8")
        return 1
    if given.part:
        return 0
    settings = Settings(
        batches=given.batch,
        heads=given.heads,
        scopes=SCOPES[:1] if given.sweep else SCOPES,
        sweep=given.sweep,
        peers=not given.no_peers,
    )
    found = measure(settings, "cuda", lambda _: None)
    found["commit"] = given.commit or commit()
    found["checks"] = checks
    rows = found.pop("rows")
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    head = json.dumps(found, indent=1).removesuffix("\n}")
    given.out.write_text(f'{head},\n "rows": [\n  {lines}\n ]\n}}\n', encoding="utf-8")
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
