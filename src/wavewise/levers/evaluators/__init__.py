"""One module per lever: `evaluate(view, spec) -> Judgement`. The catalogue names the module."""

import importlib
from collections.abc import Callable

from wavewise.errors import InputError
from wavewise.levers.catalogue import LeverSpec
from wavewise.levers.judgement import Judgement
from wavewise.levers.view import View

Evaluator = Callable[[View, LeverSpec], Judgement]


def evaluator(spec: LeverSpec) -> Evaluator:
    """The evaluator that the catalogue names.

    Raises:
        InputError: there is no such evaluator.
    """
    name = spec.evaluator or ""
    if not name.isidentifier():
        raise InputError(f"lever catalogue: {spec.id} has no evaluator")
    try:
        return importlib.import_module(f"wavewise.levers.evaluators.{name}").evaluate
    except ModuleNotFoundError as error:
        raise InputError(f"lever catalogue: {spec.id} names the unknown evaluator {name!r}") from error
