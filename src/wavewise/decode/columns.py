"""Column work that the rooms of this floor share. Names are categories: they are compared, never spelled out."""

from collections.abc import Mapping, Sequence

import polars as pl

from wavewise.decode.intervals import IntArray


def group_ids(frame: pl.DataFrame, by: Sequence[str]) -> IntArray:
    """A number per row, equal for rows that agree in all of `by` (null agrees with null); dense from 0."""
    distinct = frame.select(by).unique(maintain_order=True).with_row_index("group")
    joined = frame.select(by).join(distinct, on=by, how="left", nulls_equal=True, maintain_order="left")
    return joined["group"].to_numpy().astype("int64")


def name_flags(names: pl.Series, patterns: Mapping[str, str]) -> pl.DataFrame:
    """Whether each name matches each pattern, decided once per distinct name.

    Args:
        names: a categorical column.
        patterns: flag -> regular expression.

    Returns:
        A boolean column per flag, one row per name.
    """
    column = names.rename("name").to_frame()
    spelled = pl.col("name").cast(pl.String)
    distinct = column.unique().with_columns(
        **{flag: spelled.str.contains(pattern) for flag, pattern in patterns.items()}
    )
    joined = column.join(distinct, on="name", how="left", nulls_equal=True, maintain_order="left")
    return joined.select(pl.col(*patterns).fill_null(value=False))
