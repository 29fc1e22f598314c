"""Precision and recall of a sweep against labelled documents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wavewise.levers.sweep.findings import Draft

Labels = Mapping[str, Mapping[str, Sequence[str]]]
"""Document -> lever -> accepted verdicts. What is not listed must not be drafted."""


@dataclass(frozen=True)
class Score:
    """How drafts compare with labels.

    Attributes:
        right: drafted with an accepted verdict.
        wrong: drafted with another verdict, or for a lever that has none.
        missed: labelled and not drafted.
    """

    right: tuple[str, ...]
    wrong: tuple[str, ...]
    missed: tuple[str, ...]

    @property
    def precision(self) -> float | None:
        """Share of the drafts that are right; None without drafts."""
        drafted = len(self.right) + len(self.wrong)
        return len(self.right) / drafted if drafted else None

    @property
    def recall(self) -> float | None:
        """Share of the labels that were drafted right; None without labels."""
        mislabelled = sum("instead of" in line for line in self.wrong)
        labels = len(self.right) + mislabelled + len(self.missed)
        return len(self.right) / labels if labels else None

    @property
    def sentence(self) -> str:
        """Both figures with their counts."""
        drafted = len(self.right) + len(self.wrong)
        return (
            f"precision {_percent(self.precision)} ({len(self.right)} of {drafted} drafts), "
            f"recall {_percent(self.recall)} ({len(self.missed)} labels without a draft)"
        )


def _percent(share: float | None) -> str:
    return "not measured" if share is None else f"{100 * share:.1f} %"


def score(drafts: Sequence[Draft], labels: Labels) -> Score:
    """Compares drafts with labels, document by document (by file name)."""
    right: list[str] = []
    wrong: list[str] = []
    drafted: set[tuple[str, str]] = set()
    for draft in drafts:
        name = draft.document.rsplit("/", 1)[-1]
        accepted = labels.get(name, {}).get(draft.lever)
        drafted.add((name, draft.lever))
        what = f"{name}: {draft.lever} {draft.verdict}"
        if accepted is None:
            wrong.append(f"{what}, of which the text says nothing")
        elif draft.verdict in accepted:
            right.append(what)
        else:
            wrong.append(f"{what} instead of {' or '.join(accepted)}")
    missed = [
        f"{name}: {lever} {' or '.join(verdicts)}"
        for name, levers in labels.items()
        for lever, verdicts in levers.items()
        if (name, lever) not in drafted
    ]
    return Score(tuple(right), tuple(wrong), tuple(missed))
