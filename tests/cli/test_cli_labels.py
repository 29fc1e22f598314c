"""`--label KEY=VALUE PATH`: a path is one thing only, on whichever side of a command it stands."""

from pathlib import Path

import pytest

from wavewise.cli.labels import split_labels
from wavewise.errors import UsageError


def test_labels_belong_to_the_path_behind_them() -> None:
    words = ["--label", "context=4k", "a", "--label=model=M", "--label", "context=12k", "b", "--force", "a"]
    assert split_labels(words) == (
        ["a", "b", "--force", "a"],
        {Path("a"): {"context": "4k"}, Path("b"): {"model": "M", "context": "12k"}},
    )
    assert split_labels(["--label", "context=4k", "a", "--label", "context=4k", "a"])[0] == ["a", "a"]


@pytest.mark.parametrize(
    "words",
    [
        ["--label", "context=4k", "same", "--label", "context=12k", "same"],
        ["--label", "context=4k", "--label", "context=12k", "same"],
    ],
)
def test_two_values_for_one_path_are_refused_rather_than_the_last_kept(words: list[str]) -> None:
    with pytest.raises(UsageError, match="cannot be both 4k and 12k"):
        split_labels(words)
