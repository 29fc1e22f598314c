"""Grids as formulas: `ceil(B*2*nsplit)`, `B, 64, nsplit`, `cdiv(T, BLOCK) if B < 8 else B`.

A formula is read with `ast` and computed node by node from a short list of what is allowed; nothing is ever
handed to `eval`. Arithmetic is exact (whole numbers and fractions), so that a ceil never trips over a
rounding error of a division.
"""

import ast
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction

from wavewise.errors import UsageError

_LARGEST = 2**63
_LONGEST = 2000

_BINARY: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: Fraction(a // b),
    ast.Mod: lambda a, b: a % b,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Fraction, Fraction], bool]] = {
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
}
_FUNCTIONS: dict[str, tuple[Callable[[list[Fraction]], Fraction], range]] = {
    "ceil": (lambda a: Fraction(math.ceil(a[0])), range(1, 2)),
    "floor": (lambda a: Fraction(math.floor(a[0])), range(1, 2)),
    "abs": (lambda a: abs(a[0]), range(1, 2)),
    "cdiv": (lambda a: Fraction(math.ceil(a[0] / a[1])), range(2, 3)),
    "min": (min, range(2, 20)),
    "max": (max, range(2, 20)),
}
"""Name -> what it does and how many arguments it takes."""


def variables_of(text: str) -> frozenset[str]:
    """The names that a formula needs values for.

    Raises:
        UsageError: the text is no formula.
    """
    tree = _parsed(text)
    called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node not in called}
    return frozenset(names)


def grid_of(text: str, variables: Mapping[str, int] | None = None) -> tuple[int, int, int]:
    """A grid from "32x2x4", "32,2,4", "256" or formulas of `variables`, missing dimensions filled with 1.

    Raises:
        UsageError: no formula, an unknown name, more than three dimensions, or a dimension that is not a
            whole number of at least 1.
    """
    plain = re.fullmatch(r"\s*-?\d+(\s*[xX×]\s*-?\d+){1,2}\s*", text)
    tree = _parsed(",".join(re.split(r"[xX×]", text)) if plain else text)
    parts = tree.body.elts if isinstance(tree.body, ast.Tuple) else [tree.body]
    if not 1 <= len(parts) <= 3:
        raise UsageError(f"grid {text!r}: {len(parts)} dimensions; a grid has one to three")
    sizes: list[int] = []
    for part in parts:
        value = _value(part, variables or {}, text)
        if value != int(value):
            raise UsageError(
                f"grid {text!r} gives {float(value):g} CTAs{_at(variables)}; round it with ceil or floor"
            )
        if value < 1:
            raise UsageError(f"grid {text!r} gives {int(value)} CTAs{_at(variables)}; a grid has at least 1")
        sizes.append(int(value))
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _at(variables: Mapping[str, int] | None) -> str:
    return f" at {', '.join(f'{k}={v}' for k, v in variables.items())}" if variables else ""


def _parsed(text: str) -> ast.Expression:
    if len(text) > _LONGEST:
        raise UsageError(f"a formula of {len(text):,} characters is too long (at most {_LONGEST:,})")
    try:
        return ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{text!r} is no formula: {getattr(error, 'msg', None) or error}") from error


def _value(node: ast.expr, variables: Mapping[str, int], text: str) -> Fraction:
    try:
        value = _computed(node, variables, text)
    except ZeroDivisionError as error:
        raise UsageError(f"{text!r} divides by zero{_at(variables)}") from error
    except RecursionError as error:
        raise UsageError(f"{text!r} is nested too deeply") from error
    return value


def _computed(node: ast.expr, variables: Mapping[str, int], text: str) -> Fraction:
    match node:
        case ast.Constant(value=int() as value):
            result = Fraction(int(value))
        case ast.Constant(value=float() as value) if math.isfinite(value):
            result = Fraction(str(value))
        case ast.Name(id=name):
            if name not in variables:
                given = f" (given: {', '.join(sorted(variables))})" if variables else ""
                raise UsageError(f"{text!r} needs a value for {name!r}: --let {name}=...{given}")
            result = Fraction(variables[name])
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            result = -_computed(inner, variables, text)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            result = _computed(inner, variables, text)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            a, b = _computed(left, variables, text), _computed(right, variables, text)
            result = _BINARY[type(op)](a, b)
        case ast.IfExp(test=test, body=yes, orelse=no):
            result = _computed(yes if _truth(test, variables, text) else no, variables, text)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            function, counts = _FUNCTIONS[name]
            if len(args) not in counts:
                raise UsageError(f"{text!r}: {name} does not take {len(args)} arguments")
            result = function([_computed(arg, variables, text) for arg in args])
        case _:
            known = ", ".join(_FUNCTIONS)
            raise UsageError(
                f"{text!r}: {ast.unparse(node)!r} is not allowed; formulas hold + - * / // %, comparisons, "
                f"'a if b else c' and {known}"
            )
    if abs(result) >= _LARGEST:
        raise UsageError(f"{text!r} is too large{_at(variables)}")
    return result


def _truth(node: ast.expr, variables: Mapping[str, int], text: str) -> bool:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            return _COMPARE[type(op)](_computed(left, variables, text), _computed(right, variables, text))
        case ast.BoolOp(op=op, values=values):
            whole = all if isinstance(op, ast.And) else any
            return whole(_truth(value, variables, text) for value in values)
        case _:
            raise UsageError(f"{text!r}: {ast.unparse(node)!r} is no condition")
