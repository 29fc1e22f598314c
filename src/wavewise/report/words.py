"""The wording of quantities and names, so that every rendering says the same thing the same way."""

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import PurePath

from wavewise.units import NS_PER_MS, format_ns, significant

FAMILY_WORDS = {
    "attention_split": "attention split",
    "attention_combine": "attention combine",
    "attention_schedule": "attention schedule",
    "attention": "attention (unsplit)",
    "indexer": "indexer and top-k",
    "moe_gemm": "MoE GEMM",
    "moe_route": "MoE routing",
    "dense_gemm": "dense GEMM",
    "all_reduce": "all-reduce",
    "collective_other": "other collectives",
    "norm": "norm",
    "rope": "rope",
    "quant": "quantisation",
    "kv_cache": "KV cache",
    "kv_compress": "KV compression",
    "residual_mix": "residual mixing",
    "sampling": "sampling",
    "elementwise": "element-wise",
    "memcpy": "memcpy",
    "memset": "memset",
    "other": "other (unnamed)",
}
"""How a sentence calls a family; a family of a user's own rule file reads as its name does."""

ENGINE_WORDS = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt-llm": "TensorRT-LLM",
    "openai": "an OpenAI-compatible server",
    "unknown": "unknown engine",
}

_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|\{anonymous\}::")
_FUNCTOR = re.compile(r"\b(\w*Functor\w*)\b")


def family_words(family: str) -> str:
    """A family as a sentence calls it."""
    return FAMILY_WORDS.get(family, family.replace("_", " "))


_FAMILY_KEYS = "|".join(name for name in FAMILY_WORDS if name != "other")
_FAMILY_CODE = re.compile(rf"(?P<start>\A|(?<=\. ))?`(?P<family>{_FAMILY_KEYS})`")


def families_in_words(text: str) -> str:
    """Sentences with their families called by their words, where they quote the keys."""
    return _FAMILY_CODE.sub(_word_in_place, text)


def _word_in_place(found: re.Match[str]) -> str:
    words = FAMILY_WORDS[found["family"]]
    return words if found["start"] is None else capital(words)


def capital(text: str) -> str:
    """The text as a sentence begins it; names such as KV stay as they are."""
    return text[:1].upper() + text[1:]


def engine_words(engine: str) -> str:
    """An engine as it writes itself."""
    return ENGINE_WORDS.get(engine, engine)


def printable(text: str) -> str:
    """`text` without what could break a medium: odd spaces become spaces, other unprintables "?".

    Kernel and file names come from traces; an escape sequence in one must not reach a terminal.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else " " if char.isspace() else "?" for char in text
    )


def plural(count: float, noun: str, many: str | None = None) -> str:
    """A count with its noun: "1 step", "6 steps", "2,300 steps"."""
    amount = f"{count:,.0f}" if float(count).is_integer() else f"{count:,.1f}"
    return f"{amount} {noun if count == 1 else many or noun + 's'}"


_DECIMALS = {"ns": 0, "us": 3, "ms": 6, "s": 9}
"""Decimals of a time in each unit down to 1 ns, which is as fine as a trace records: more digits come from
averaging and say nothing."""

HALF_NS = 0.5


def ms(value: float) -> str:
    """Milliseconds in the unit a reader expects, three significant digits: "5.92 ms", "230 us", "41.0 s"."""
    ns = value * NS_PER_MS
    return "under 1 ns" if 0 < abs(ns) < HALF_NS else format_ns(ns)


def us(value: float) -> str:
    """Microseconds in the unit a reader expects: "253 us", "4.21 ms"."""
    return ms(value / 1000)


def amount(value: float, unit: str = "ms") -> str:
    """A bare figure for a table column that names its unit: three significant digits, thousands separated.

    Times have no digits below 1 ns, other quantities none beyond the sixth decimal.

    >>> amount(0.0123456, "us")
    '0.012'
    """
    text = significant(value)
    decimals = _DECIMALS.get(unit, 6)
    if len(text.partition(".")[2]) <= decimals:
        return text
    text = f"{value:,.{decimals}f}"
    return "0" if not text.strip("-0.") else text


def percent(share: float) -> str:
    """A share for running text: one decimal below 10 % and above 90 %, whole per cent between."""
    value = 100 * share
    if value == 0:
        return "0 %"
    if abs(value) < 0.05:
        return "< 0.1 %" if value > 0 else "> -0.1 %"
    if 99.95 <= value < 100:
        return "> 99.9 %"
    if value < 9.95 or value >= 90.0:
        return f"{value:.1f} %"
    return f"{value:.0f} %"


def grid_text(grid: tuple[int, int, int] | None) -> str:
    """A grid or block as "32 x 2 x 4", trailing ones left out."""
    if grid is None:
        return "-"
    sides = list(grid)
    while len(sides) > 1 and sides[-1] == 1:
        sides.pop()
    return " x ".join(str(side) for side in sides)


@lru_cache(maxsize=65536)
def short_kernel(name: str, width: int = 52) -> str:
    """A kernel's name as an engineer says it: no return type, arguments, template values or outer namespaces.

    >>> short_kernel("void marlin_moe_wna16::Marlin<112l, 56l, 128, 1>(int4 const*, int4*)")
    'marlin_moe_wna16::Marlin'
    >>> short_kernel("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int> >(int)")
    'native::vectorized_elementwise_kernel<FillFunctor>'
    """
    text = _ANONYMOUS.sub("", printable(name).strip())
    head = _outside_brackets(text).removeprefix("void ").strip()
    if not head:
        head = text
    head = "::".join(head.split("::")[-2:])
    functor = _FUNCTOR.search(text)
    if functor and functor.group(1) not in head:
        head = f"{head}<{functor.group(1)}>"
    return middle(head, width)


def tell_apart(names: Iterable[str], width: int = 52) -> dict[str, str]:
    """Full kernel name -> short name; template variants of one kernel keep the values in which they differ.

    >>> tell_apart(["void gemm<4096u, 8u, 1u>(int)", "void gemm<1024u, 8u, 1u>(int)"])
    {'void gemm<4096u, 8u, 1u>(int)': 'gemm<4096u>', 'void gemm<1024u, 8u, 1u>(int)': 'gemm<1024u>'}
    """
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(short_kernel(name, width), []).append(name)
    told: dict[str, str] = {}
    for short, members in groups.items():
        arguments = [_template_arguments(name) for name in members]
        differing = [
            position
            for position in range(min(map(len, arguments)))
            if len({each[position] for each in arguments}) > 1
        ][:3]
        for name, values in zip(members, arguments, strict=True):
            shown = ", ".join(middle(values[position], 16) for position in differing)
            told[name] = f"{short}<{shown}>" if len(members) > 1 and shown else short
    return told


def _template_arguments(name: str) -> list[str]:
    """Values of the outermost angle brackets, split at their own commas."""
    values: list[str] = [""]
    depth = 0
    for char in printable(name):
        if char in ">)" and depth:
            depth -= 1
            if depth == 0:
                break
        if depth > 1 or (depth == 1 and char != ","):
            values[-1] += char
        elif depth == 1:
            values.append("")
        if char == "<" or (char == "(" and depth):
            depth += 1
    return [value.strip() for value in values]


def _outside_brackets(text: str) -> str:
    """`text` up to its argument list, without what stands between angle brackets."""
    kept: list[str] = []
    depth = 0
    for char in text:
        if char == "<":
            depth += 1
        elif char == ">" and depth:
            depth -= 1
        elif depth == 0:
            if char == "(" and kept:
                break
            kept.append(char)
    return "".join(kept)


_NUMBER_UNIT = re.compile(
    r"(?<=\d) (?=(?:%|(?:ms|us|ns|s|B|SMs|KiB|MiB|GiB|tokens/s)\b))|(?<=<) (?=\d)|(?<=<=) (?=\d)"
)


def bound(text: str, glue: str) -> str:
    """`text` with `glue` for the space between a number and its unit, so that no line breaks there."""
    return _NUMBER_UNIT.sub(glue, text)


def middle(text: str, width: int) -> str:
    """`text` cut in the middle to `width` characters: both ends of a name tell kernels apart."""
    if len(text) <= width:
        return text
    left = (width - 2) * 3 // 5
    return f"{text[:left]}..{text[len(text) - (width - 2 - left) :]}"


def short_path(path: str) -> str:
    """The end of a path that tells traces apart: its folder and file name, printable."""
    parts = PurePath(path).parts
    return printable("/".join(parts[-2:]) if len(parts) > 1 and parts[-2] not in ("/", "\\") else path)
