"""The base of every result type."""

import msgspec


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen record that msgspec can write to JSON and read back.

    Subclasses state `kw_only=True` themselves: msgspec does not inherit it (frozen it does).

    A quantity that could not be measured is `None`, and the field of the same name with `_reason` behind it
    (or the nearest `reason`) says why. It is never 0.
    """
