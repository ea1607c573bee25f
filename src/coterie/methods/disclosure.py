"""What a method tells: a fact that every method states about its messages, and what several methods have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
SPLITS = ("samples", "features", "users")


@dataclass(frozen=True)
class Disclosure:
    """What a party says in a round of a method, and what can be computed from it.

    The page that `coterie agent --show` prints and the table in docs/disclosure.md are made of these sentences.
    """

    sent: str
    """What one party's message is."""
    learned: str
    """What somebody who sees that message can compute."""
    secure: str
    """What can still be computed with secure sums, where a `Sum` shows its total and nothing else."""
    setup: str = ""
    """What is sent beside the rounds' messages."""


def discloses(sent: str, learned: str = "", secure: str = "", splits: Sequence[str] = SPLITS) -> Callable[[F], F]:
    """Declare what a query or a protocol tells the other parties; the page of consent is made of these sentences."""

    def declared(function: F) -> F:
        function.disclosure = Disclosure(sent, learned, secure)  # type: ignore[attr-defined]
        function.splits = tuple(splits)  # type: ignore[attr-defined]
        return function

    return declared


SAME = "the same: these messages go to neighbours, and are not sums"
TOTALS = (
    "the totals over all parties, and nothing that one of them said; with two parties, total less own is the other's"
)
LABELS_FIRST = "ALL LABELS AND WEIGHTS, once, to all parties; then"
WEIGHTED_ROWS = Disclosure(
    sent="a weighted sum of its own rows, one number per column, added to those of the others",
    learned="a weighted sum of rows, another one each round: with fewer rows than rounds, the space that the rows span",
    secure=TOTALS,
)
