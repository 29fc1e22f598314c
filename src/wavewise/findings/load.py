"""Reading `findings.json` back: for baselines, comparisons and exports."""

import re
from pathlib import Path

import msgspec

from wavewise.errors import InputError
from wavewise.findings.root import SCHEMA, Findings

_SCHEMA = re.compile(r"^wavewise\.findings/(\d+)$")


class _Header(msgspec.Struct):
    schema: str = ""
    wavewise: str = ""


def load_findings(path: Path) -> Findings:
    """The findings in a file that `wavewise analyze --json` wrote.

    Keys that this version does not know are ignored, so that later versions may add some.

    Raises:
        InputError: the file cannot be read, is no findings.json, or has a newer schema.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    try:
        header = msgspec.json.decode(data, type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a findings.json ({error})") from error
    found = _SCHEMA.match(header.schema)
    if not found:
        raise InputError(
            f"{path}: not a findings.json (its schema is {header.schema!r}, expected {SCHEMA!r})"
        )
    ours = _SCHEMA.match(SCHEMA)
    assert ours
    if int(found[1]) > int(ours[1]):
        raise InputError(
            f"{path}: written by a newer wavewise ({header.wavewise or 'unknown version'}, schema {header.schema}); "
            "upgrade to read it"
        )
    try:
        return msgspec.json.decode(data, type=Findings)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: damaged findings ({error})") from error
