"""The sweep: documents in, passages, drafts and conflicts out."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from wavewise.levers.catalogue import Catalogue
from wavewise.levers.sweep.context import BlockContext, heading_context
from wavewise.levers.sweep.documents import Block, Document
from wavewise.levers.sweep.drafting import conflicts_of, draft_documents
from wavewise.levers.sweep.figures import figure_near
from wavewise.levers.sweep.findings import Passage, Swept
from wavewise.levers.sweep.index import SentenceIndex
from wavewise.levers.sweep.judge import Found, judge, settle
from wavewise.levers.sweep.mentions import Mention, find_mentions
from wavewise.levers.sweep.rules import Rules, load_rules
from wavewise.levers.sweep.sentences import Span, sentences

_QUOTE = 300
"""Characters of a quotation."""
_PROSE = 4_000
"""A longer "sentence" is data, not prose."""


@dataclass(frozen=True)
class _About:
    """What a document is about, None where it does not say."""

    model: str | None
    gpu: str | None


@dataclass(frozen=True)
class _Sentence:
    document: int
    block: int
    span: Span


def sweep(
    documents: Sequence[Document],
    catalogue: Catalogue,
    *,
    rules: Rules | None = None,
    index: Path | None = None,
    skipped: Sequence[str] = (),
) -> Swept:
    """Finds what documents say of the levers of a catalogue.

    Args:
        documents: what to read.
        catalogue: levers with their names.
        rules: language rules; the packaged ones by default.
        index: where to keep the full-text index; in memory by default.
        skipped: what was left out while reading, handed through.
    """
    rules = rules or load_rules()
    rows = [
        _Sentence(d, b, span)
        for d, document in enumerate(documents)
        for b, block in enumerate(document.blocks)
        for span in sentences(block.text)
    ]
    store = SentenceIndex(index)
    try:
        store.add(
            (
                i,
                row.span.of(_block(documents, row).text),
                documents[row.document].name,
                _place(documents, row),
            )
            for i, row in enumerate(rows)
        )
        named = {(rows[i].document, rows[i].block) for i in store.naming(catalogue)}
    finally:
        store.close()
    passages: list[Passage] = []
    for d, document in enumerate(documents):
        passages += _sweep_document(document, {b for dd, b in named if dd == d}, catalogue, rules)
    drafts, unclear = draft_documents(passages, rules)
    return Swept(
        documents=tuple(document.name for document in documents),
        skipped=tuple(skipped),
        passages=tuple(passages),
        drafts=tuple(drafts),
        conflicts=tuple(conflicts_of(drafts, unclear)),
        unclear=tuple(f"{c.lever}: {c.why}" for c in unclear),
    )


def _block(documents: Sequence[Document], row: _Sentence) -> Block:
    return documents[row.document].blocks[row.block]


def _place(documents: Sequence[Document], row: _Sentence) -> str:
    block = _block(documents, row)
    if block.commit is not None:
        return f"commit {block.commit}"
    return f"page {block.page}" if block.page is not None else f"line {block.line_at(row.span.start)}"


def _sweep_document(document: Document, named: set[int], catalogue: Catalogue, rules: Rules) -> list[Passage]:
    """Passages of one document; blocks that name no lever count where a heading gives them a topic."""
    about = _about_document(document, rules)
    found: list[Passage] = []
    for number, block in enumerate(document.blocks):
        around = heading_context(block, catalogue, rules)
        if number in named or around.topic is not None:
            found += _sweep_block(document.name, block, around, catalogue, rules, about)
    return found


def _sweep_block(
    name: str, block: Block, around: BlockContext, catalogue: Catalogue, rules: Rules, about: _About
) -> list[Passage]:
    passages: list[Passage] = []
    named: dict[str, int] = {}
    text = block.text.replace("'", "’")
    for span in sentences(text):
        sentence = span.of(text)
        if len(sentence) > _PROSE:
            continue
        mentions = find_mentions(sentence, catalogue, rules)
        if block.kind in ("heading", "quote"):
            why = "a heading" if block.kind == "heading" else "a quotation"
            settled = {m.lever: Found(m.lever, None, "fact", 0, "", m.start, why) for m in mentions}
        else:
            context = around.at(sentence, mentions, rules)
            settled = settle(judge(sentence, mentions, context, rules))
            settled = around.labelled(sentence, mentions, settled, rules)
            around = around.after(sentence, mentions, settled, rules)
        for lever in dict.fromkeys((*settled, *(m.lever for m in mentions))):
            place = _place_of(lever, settled, mentions)
            passage = _passage(name, block, span, place, settled.get(lever), rules, about)
            earlier = None if any(m.lever == lever for m in mentions) else named.get(lever)
            passages.append(_from_its_name(passage, block, span, earlier))
        named.update((m.lever, span.start) for m in mentions)
    return passages


def _from_its_name(passage: Passage, block: Block, span: Span, start: int | None) -> Passage:
    """A sentence that does not name its lever is quoted from the sentence that does, where that is near."""
    if start is None or passage.verdict is None or span.end - start > _QUOTE:
        return passage
    line = passage.line if passage.line is None else block.line_at(start)
    return structs.replace(passage, quote=block.text[start : span.end].strip(), line=line)


def _place_of(lever: str, settled: dict[str, Found], mentions: Sequence[Mention]) -> tuple[str, int]:
    """The lever, and where it is last named before its cue."""
    cue = settled[lever].position if lever in settled else 0
    named = [m.start for m in mentions if m.lever == lever]
    return lever, max((start for start in named if start <= cue), default=min(named, default=cue))


def _passage(
    name: str,
    block: Block,
    span: Span,
    named: tuple[str, int],
    found: Found | None,
    rules: Rules,
    about: _About,
) -> Passage:
    lever, position = named
    quote = block.text[span.start : span.end]
    if found is not None and found.kind == "label":
        found = replace(
            found, figure=figure_near(quote, found.position, found.position + 1, reach=len(quote))
        )
    models = [m.group() for m in rules.models.finditer(quote)]
    other = next((m for m in models if rules.model(m) != about.model), None) if about.model else None
    gpu = rules.gpus.search(quote)
    if found is not None and found.verdict is not None and _other_gpu(quote, about.gpu, rules):
        found = replace(found, verdict=None, why_not="another GPU than the document's")
    verdict = found.verdict if found is not None else None
    return Passage(
        lever=lever,
        document=name,
        line=block.line_at(span.start) if block.commit is None and block.page is None else None,
        page=block.page,
        commit=block.commit,
        quote=_shorten(quote, position),
        verdict=verdict,
        ground=_ground(found, quote, rules) if verdict is not None else None,
        cue=found.cue if found is not None and found.cue else None,
        why_not=found.why_not if found is not None else None,
        figure=found.figure if found is not None else None,
        model=other or (models[0] if models else None),
        gpu=gpu.group() if gpu else None,
        elsewhere=other is not None,
        strength=found.strength if found is not None else 0,
    )


def _ground(found: Found | None, quote: str, rules: Rules) -> str | None:
    """Why: from the cue itself, then from the words after it, then from the sentence; else what was measured."""
    if found is None:
        return None
    if found.verdict == "promising":
        return "estimated"
    near = quote[max(0, found.position) :]
    end = re.search(r"[;)]|,\s(?:and\s)?[A-Z]", near)
    ground = rules.ground(found.cue) or rules.ground(near[: end.start()] if end else near)
    if ground is not None:
        return ground
    return "measured" if found.verdict in ("works", "worse", "no gain") else None


def _shorten(quote: str, position: int) -> str:
    """The sentence; where it is very long, from the lever's name on, cut at words."""
    if len(quote) <= _QUOTE:
        return quote.strip()
    start = max(0, min(position, len(quote) - _QUOTE // 2))
    cut = quote[start : start + _QUOTE].strip()
    if start + _QUOTE < len(quote):
        cut = f"{cut.rsplit(' ', 1)[0]} ..."
    return f"... {cut}" if start else cut


def _about_document(document: Document, rules: Rules) -> _About:
    """The model and the GPU that the document is about: those named first, in its title or opening."""
    model = _first(document, rules.models)
    gpu = _first(document, rules.gpus)
    return _About(None if model is None else rules.model(model), gpu)


def _first(document: Document, pattern: re.Pattern[str]) -> str | None:
    found = (pattern.search(block.text) for block in document.blocks)
    return next((match.group() for match in found if match is not None), None)


def _other_gpu(quote: str, gpu: str | None, rules: Rules) -> bool:
    """Whether a sentence names GPUs, and only others than the document's."""
    named = {match.group().lower() for match in rules.gpus.finditer(quote)}
    return gpu is not None and bool(named) and gpu.lower() not in named
