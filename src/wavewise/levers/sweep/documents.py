"""Local documents as blocks of text with their place: Markdown, plain text, HTML, PDF, git log."""

import logging
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path

from wavewise.errors import InputError, MissingExtraError

TEXT_SUFFIXES = frozenset({".txt", ".md", ".markdown", ".rst", ".org", ".adoc", ".log", ".text", ""})
HTML_SUFFIXES = frozenset({".html", ".htm", ".xhtml"})
PDF_SUFFIXES = frozenset({".pdf"})
MAX_BYTES = 64 * 1024 * 1024
"""A document larger than this is refused: prose is not, and a sweep should not hang on a data file."""

_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")
_ITEM = re.compile(r"^(\s*)(?:[-*+•–]|\(?\d{1,3}[.)]|\(?[a-z][.)])\s+(?:\[[ xX]\]\s+)?(.*)$")
_ROW = re.compile(r"^\s*\|(.*)\|\s*$")
_RULE = re.compile(r"^\s*\|?[\s:|-]+\|[\s:|-]*$")
_FENCE = re.compile(r"^\s*(```|~~~)")
_COMMIT = re.compile(r"^commit ([0-9a-f]{7,40})\b")
_MARKUP = re.compile(r"\*+(?=\S)|(?<=\S)\*+|__|(?<!\w)_(?=\w)|(?<=\w)_(?!\w)|`")
_STAMP = re.compile(
    r"^\s*(?:[\[(<]?(?:\d{4}-\d\d-\d\d[T ]?)?\d{1,2}:\d\d(?::\d\d)?(?:\s?[AaPp][Mm])?[\])>]?[\s,–-]*)"
    r"(?:<?[\w .@-]{1,24}>?\s*:\s+)?"
)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True)
class Block:
    """A stretch of prose that belongs together.

    Attributes:
        kind: "heading", "paragraph", "item", "row", "quote" or "commit".
        text: without markup, one line.
        lines: (offset in text, line number) where each source line begins.
        headings: titles above it, outermost first.
        lead: the paragraph that introduces the list an item stands in, "" without one.
    """

    kind: str
    text: str
    lines: tuple[tuple[int, int], ...] = ()
    headings: tuple[str, ...] = ()
    lead: str = ""
    page: int | None = None
    commit: str | None = None

    def line_at(self, offset: int) -> int | None:
        """Source line of a character of `text`."""
        line = None
        for start, number in self.lines:
            if start > offset:
                break
            line = number
        return line


@dataclass(frozen=True)
class Document:
    """One document."""

    name: str
    blocks: tuple[Block, ...]


def read_documents(paths: Sequence[Path], *, recursive: bool = False) -> tuple[list[Document], list[str]]:
    """Reads files, and the known kinds of files in folders.

    Returns:
        The documents, and a line for each file of a folder that was not read, with why.

    Raises:
        InputError: a named file is missing, unreadable or no text; nothing is left to read.
    """
    documents: list[Document] = []
    skipped: list[str] = []
    for path in paths:
        if path.is_dir():
            for file in _in_folder(path, recursive):
                try:
                    documents.append(read_document(file))
                except (InputError, MissingExtraError) as error:
                    skipped.append(str(error))
        else:
            documents.append(read_document(path))
    return documents, skipped


def _in_folder(folder: Path, recursive: bool) -> list[Path]:
    known = TEXT_SUFFIXES - {""} | HTML_SUFFIXES | PDF_SUFFIXES
    files = folder.rglob("*") if recursive else folder.iterdir()
    return sorted(
        f
        for f in files
        if f.is_file()
        and f.suffix.lower() in known
        and not any(part.startswith(".") for part in f.relative_to(folder).parts)
    )


def read_document(path: Path) -> Document:
    """One file as blocks.

    Raises:
        InputError: missing, unreadable, too large or binary.
        MissingExtraError: a PDF without the library that reads it.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: over {MAX_BYTES // 2**20} MB; a document to sweep is prose")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot read ({error.strerror or error})") from error
    suffix = path.suffix.lower()
    if suffix in PDF_SUFFIXES or data.startswith(b"%PDF-"):
        return Document(str(path), tuple(_pdf(path)))
    if b"\0" in data[:8192] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{path}: not a text (binary data); known: Markdown, text, HTML, PDF")
    text = _decode(data)
    if suffix in HTML_SUFFIXES or text.lstrip()[:15].lower().startswith(("<!doctype html", "<html")):
        return Document(str(path), tuple(_html(text)))
    if _COMMIT.match(text):
        return Document(str(path), tuple(_log(text)))
    return Document(str(path), tuple(text_blocks(text)))


def _decode(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8-sig", errors="replace")


def text_blocks(text: str) -> list[Block]:
    """Markdown or plain text as blocks. Code fences and block quotes are told apart, not judged as prose."""
    # Some texts run a heading into the end of a paragraph ("... risk.## Levers"): break it off.
    lines = re.sub(r"(?<=\S)(?=#{2,6} \S)", "\n", text).splitlines()
    shift = _line_numbers(text)
    return _Builder().build(zip(lines, shift, strict=False))


def _line_numbers(text: str) -> list[int]:
    """Source line of every line after run-in headings were broken off."""
    numbers: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        numbers += [number] * (1 + len(re.findall(r"(?<=\S)(?=#{2,6} \S)", line)))
    return numbers


class _Builder:
    """Collects lines into blocks, keeping the headings above and the paragraph before a list."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.headings: list[tuple[int, str]] = []
        self.lead = ""
        self.kind = "paragraph"
        self.pending: list[tuple[str, int]] = []
        self.header: list[str] = []

    def build(self, lines: Iterable[tuple[str, int]]) -> list[Block]:
        fenced = False
        rows = list(lines)
        for i, (line, number) in enumerate(rows):
            if _FENCE.match(line):
                self.flush()
                fenced = not fenced
            elif fenced:
                continue
            elif not line.strip():
                self.flush()
            elif self._is_title(rows, i):
                self.flush()
                self._title(line, number)
            elif row := _ROW.match(line):
                self._row(row.group(1), number, line)
            elif stamp := _STAMP.match(line):
                self.flush()
                self.pending = [(line[stamp.end() :], number)]
            elif item := _ITEM.match(line):
                self.flush()
                self.kind = "item"
                self.pending = [(item.group(2), number)]
            elif line.lstrip().startswith(">"):
                if self.kind != "quote":
                    self.flush()
                self.kind = "quote"
                self.pending.append((line.lstrip().lstrip("> "), number))
            else:
                self.pending.append((line.strip(), number))
        self.flush()
        return self.blocks

    @staticmethod
    def _is_title(rows: list[tuple[str, int]], i: int) -> bool:
        """A Markdown heading, or a short line alone between blank lines without a full stop."""
        line = rows[i][0]
        if _HEADING.match(line):
            return True
        alone = (i == 0 or not rows[i - 1][0].strip()) and (i + 1 == len(rows) or not rows[i + 1][0].strip())
        words = line.split()
        long_words = [w for w in words if sum(c.isalpha() for c in w) >= 4]
        titled = sum(not w.lstrip("(\"'“")[:1].islower() for w in long_words)
        return (
            alone
            and not _ITEM.match(line)
            and not _ROW.match(line)
            and (len(words) <= 5 or (len(words) <= 14 and titled >= 0.7 * len(long_words)))
            and line.strip()[-1] not in ".!?:;,|"
            and line.strip()[0].isupper()
        )

    def _title(self, line: str, number: int) -> None:
        match = _HEADING.match(line)
        level = len(match.group(1)) if match else 2
        title = plain(match.group(2) if match else line)
        self.headings = [(n, t) for n, t in self.headings if n < level] + [(level, title)]
        self.lead = ""
        self.blocks.append(Block("heading", title, ((0, number),), tuple(t for _, t in self.headings[:-1])))

    def _row(self, cells: str, number: int, line: str) -> None:
        self.flush()
        if _RULE.match(line):
            return
        texts = [plain(cell.strip()) for cell in cells.split("|")]
        self._add("row", " — ".join(text for text in texts if text), ((0, number),))

    def flush(self) -> None:
        """Ends the block under way."""
        if self.pending:
            pieces: list[str] = []
            starts: list[tuple[int, int]] = []
            length = 0
            for raw, number in self.pending:
                text = plain(raw)
                starts.append((length, number))
                pieces.append(text)
                length += len(text) + 1
            self._add(self.kind, " ".join(pieces), tuple(starts))
        self.kind, self.pending = "paragraph", []

    def _add(self, kind: str, text: str, lines: tuple[tuple[int, int], ...]) -> None:
        lead = self.lead if kind in ("item", "row") else ""
        self.blocks.append(Block(kind, text, lines, tuple(t for _, t in self.headings), lead))
        if kind == "paragraph":
            self.lead = text


def plain(text: str) -> str:
    """Without Markdown emphasis, code marks, struck-out words and link targets."""
    text = re.sub(r"~~.*?~~", "", text)
    return re.sub(r"\s+", " ", _MARKUP.sub("", _LINK.sub(r"\1", text))).strip()


class _HtmlText(HTMLParser):
    """Turns HTML into Markdown-like lines, so that one reader of blocks serves both."""

    _BLOCKS = frozenset(
        {"p", "div", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "br", "ul", "ol", "table"}
    )
    _SILENT = frozenset({"script", "style", "head", "pre", "svg", "nav", "template", "noscript"})
    # Elements whose end tag may be left out never open a silent stretch.

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[tuple[str, int]] = []
        self.line = ""
        self.start = 1
        self.silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        if tag in self._SILENT:
            self.silent += 1
        if tag in self._BLOCKS or tag == "blockquote":
            self.end_line()
        if tag[0] == "h" and tag[1:].isdigit():
            self.line = "#" * int(tag[1:]) + " "
        elif tag == "li":
            self.line = "- "
        elif tag == "blockquote":
            self.line = "> "
        elif tag == "tr":
            self.line = "|"
        elif tag in ("s", "del", "strike"):
            self.line += "~~"

    def handle_endtag(self, tag: str) -> None:
        if tag in self._SILENT:
            self.silent = max(0, self.silent - 1)
        elif tag in ("td", "th"):
            self.line = self.line.rstrip() + "|"
        elif tag in ("s", "del", "strike"):
            self.line += "~~"
        elif tag in self._BLOCKS or tag == "blockquote":
            self.end_line()

    def handle_data(self, data: str) -> None:
        if self.silent:
            return
        text = re.sub(r"\s+", " ", data)
        if not self.line.strip():
            self.start = self.getpos()[0]
        self.line += text

    def end_line(self) -> None:
        """Ends a line; blank lines part the blocks, but for rows and items, which follow one another."""
        text = self.line.strip()
        if text and text not in ("-", ">", "|"):
            self.lines.append((text, self.start))
            if not text.startswith(("- ", "|")):
                self.lines.append(("", self.start))
        self.line = ""
        self.start = self.getpos()[0]


def _html(text: str) -> list[Block]:
    parser = _HtmlText()
    parser.feed(text)
    parser.close()
    parser.end_line()
    return _Builder().build(parser.lines)


def _pdf(path: Path) -> list[Block]:
    try:
        from pypdf import PdfReader
        from pypdf.errors import PyPdfError

        # It also reports on stderr what it then raises, or reads all the same.
        logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    except ImportError as error:
        raise MissingExtraError(
            f"{path}: reading PDF needs pypdf; install it with `pip install 'wavewise[sweep]'`"
        ) from error
    try:
        reader = PdfReader(path)
        pages = [page.extract_text() for page in reader.pages]
    except (PyPdfError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: cannot read this PDF ({error})") from error
    blocks: list[Block] = []
    for number, text in enumerate(pages, 1):
        joined = re.sub(r"(\w)-\n(?=[a-z])", r"\1", text)
        blocks += [replace(block, page=number, lines=()) for block in text_blocks(joined)]
    if not any(block.text for block in blocks):
        raise InputError(f"{path}: no text in this PDF (scanned pages?)")
    return blocks


def _log(text: str) -> list[Block]:
    """The output of `git log`: one block per paragraph of a message, with its commit."""
    blocks: list[Block] = []
    for part in re.split(r"(?m)^(?=commit [0-9a-f]{7,40}\b)", text):
        match = _COMMIT.match(part)
        if match is None:
            continue
        header, _, body = part.partition("\n\n")
        del header
        message = "\n".join(line.removeprefix("    ") for line in body.splitlines())
        blocks += _message(message, match.group(1))
    return blocks


def _message(message: str, commit: str) -> list[Block]:
    subject, _, body = message.strip().partition("\n")
    blocks = [Block("commit", plain(subject), commit=commit[:12])]
    return blocks + [
        replace(block, commit=commit[:12], lines=(), headings=(plain(subject), *block.headings))
        for block in text_blocks(body)
    ]


def git_log(repository: Path, *, limit: int = 20_000) -> Document:
    """All commit messages of a repository, newest first.

    Raises:
        InputError: git is missing, or this is no repository.
    """
    command = [
        "git",
        "-C",
        str(repository),
        "log",
        f"--max-count={limit}",
        "--no-color",
        "--format=%H%x00%B%x01",
    ]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{repository}: cannot run git log ({error})") from error
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().splitlines()
        raise InputError(f"{repository}: git log failed ({reason[-1] if reason else 'no reason given'})")
    blocks: list[Block] = []
    for record in done.stdout.decode(errors="replace").split("\x01"):
        commit, _, message = record.strip().partition("\0")
        if message:
            blocks += _message(message, commit)
    return Document(f"git:{repository}", tuple(blocks))
