"""`findings.json`: the findings themselves, one more rendering of the same value."""

import msgspec

from wavewise.findings import Findings


def render_json(findings: Findings) -> bytes:
    """UTF-8 JSON with a final newline; keys as docs/findings.md names them, numbers unrounded.

    Lone surrogates (file names that are not UTF-8) have no place in UTF-8 and become "?".
    """
    try:
        return msgspec.json.encode(findings) + b"\n"
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(msgspec.to_builtins(findings))) + b"\n"


def _encodable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value
