"""Rung 3: text that is almost JSON, mended without losing a record.

What is mended, and where it comes from: bytes that are not UTF-8 and raw control characters (names taken from
C strings), bare words for numbers (printf of a double), lone surrogate escapes (names cut in the middle), and
stray commas (events filtered out by hand or by a script).
"""

import re

from wavewise.trace.notes import Notes

_STRING = rb'"(?:[^"\\]|\\.)*"'
_WORD = rb"[+-]?(?:[nN]a[nN]|[iI]nf(?:inity)?|INF(?:INITY)?|-?nan\([^()]*\)|N/A|n/a|NULL|None|undefined)"

_AFTER_KEY = re.compile(rb'((?<!\\)"\s*:\s*)' + _WORD + rb"(?=\s*[,}\]])")
_STRING_OR_WORD = re.compile(_STRING + rb"|" + _WORD + rb"(?=\s*[,}\]])", re.S)
_STRING_OR_COMMAS = re.compile(_STRING + rb"|,\s*(?=[,}\]])|([\[{])\s*,", re.S)
_CONTROL = re.compile(rb"[\x00-\x1f]")
_CONTROL_NOT_LAYOUT = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_LONE_SURROGATE = re.compile(
    rb"(?<!\\)((?:\\\\)*)(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)

# A string value of an object whose closing quote is told by what must follow it: the next key, or the end.
_STRING_BY_ITS_END = re.compile(
    rb'("[^"\\\n]{1,40}"\s*:\s*")(.*?)"(?=\s*(?:,\s*"[^"\\\n]{1,40}"\s*:|\}|\Z))', re.S
)
_BARE_QUOTE = re.compile(rb'((?:^|[^\\])(?:\\\\)*)"')


def requote(event: bytes, notes: Notes) -> bytes:
    """One event with the quotes inside its strings escaped; for an event that cannot be read otherwise."""
    found = 0

    def mend(match: re.Match[bytes]) -> bytes:
        nonlocal found
        inner, quotes = match[2], 1
        while quotes:  # a quote right behind another one needs a second look
            inner, quotes = _BARE_QUOTE.subn(rb'\1\\"', inner)
            found += quotes
        return match[1] + inner + b'"'

    mended = _STRING_BY_ITS_END.sub(mend, event)
    notes.add("unescaped_quote", found)
    return mended


def mend(text: bytes, notes: Notes) -> bytes:
    """A block with what can be mended without reading its strings: `repair` is thorough, but a hundred times slower.

    Where that is not enough, the block is read event by event, and only the events that need it are repaired.
    """
    text = _utf8(text, notes)
    text, words = _AFTER_KEY.subn(
        rb"\1null", text
    )  # a quote that is not escaped stands before a key's colon only
    text = _surrogates(text, notes)
    text, controls = _CONTROL_NOT_LAYOUT.subn(_escaped, text)  # in a string, or the block fails all the same
    bare = text.rstrip(b", \t\r\n")
    notes.add("nonfinite_number", words)
    notes.add("control_characters", controls)
    notes.add("extra_comma", text[len(bare) :].count(b","))
    return bare


def _escaped(match: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % match[0][0]


def repair(text: bytes, notes: Notes) -> bytes:
    """`text` with what can be mended mended, and each kind of mending counted in `notes`."""
    text = _utf8(text, notes)
    text, words = _AFTER_KEY.subn(
        rb"\1null", text
    )  # the usual place: safe to look for without reading strings
    text, more_words = _words_elsewhere(text)
    notes.add("nonfinite_number", words + more_words)
    text = _surrogates(text, notes)
    text = _control_characters(text, notes)
    return _commas(text, notes)


def _utf8(text: bytes, notes: Notes) -> bytes:
    try:
        text.decode()
    except UnicodeDecodeError:
        mended = text.decode(errors="replace")
        notes.add("invalid_utf8", mended.count("\ufffd") - text.count("\ufffd".encode()))
        return mended.encode()
    return text


def _surrogates(text: bytes, notes: Notes) -> bytes:
    if b"\\u" not in text:
        return text
    text, found = _LONE_SURROGATE.subn(rb"\1\\ufffd", text)
    notes.add("lone_surrogate", found)
    return text


def _words_elsewhere(text: bytes) -> tuple[bytes, int]:
    found = 0

    def mend(match: re.Match[bytes]) -> bytes:
        nonlocal found
        if match[0].startswith(b'"'):
            return match[0]
        found += 1
        return b"null"

    return _STRING_OR_WORD.sub(mend, text), found


def _control_characters(text: bytes, notes: Notes) -> bytes:
    found = 0

    def escape(match: re.Match[bytes]) -> bytes:
        nonlocal found
        found += 1
        return b"\\u%04x" % match[0][0]

    def mend(match: re.Match[bytes]) -> bytes:
        return _CONTROL.sub(escape, match[0]) if _CONTROL.search(match[0]) else match[0]

    text = re.sub(_STRING, mend, text, flags=re.S)
    text, outside = _CONTROL_NOT_LAYOUT.subn(b" ", text)
    notes.add("control_characters", found + outside)
    return text


def _commas(text: bytes, notes: Notes) -> bytes:
    found = 0

    def mend(match: re.Match[bytes]) -> bytes:
        nonlocal found
        if match[0].startswith(b'"'):
            return match[0]
        found += 1
        return match[1] or b""

    text = _STRING_OR_COMMAS.sub(mend, text)
    notes.add("extra_comma", found)
    return text
