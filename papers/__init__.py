"""Studies: one file per figure or table of the papers, with its settings, its run, its claims and
its picture.

They are not installed with Coterie. Run them in a checkout: `python -m papers --help`.

    from papers import STUDIES
    from papers.reproduce import reproduce
    reproduce(STUDIES["000 fig1"](), "results", quick=True)

A new file is found by the `name` of its class.
"""

from __future__ import annotations

from coterie.catalogue import Catalogue
from papers.study import Claim, Curve, Numbers, Study

__all__ = ["STUDIES", "Claim", "Curve", "Numbers", "Study", "chosen"]

STUDIES: Catalogue[Study] = Catalogue("papers", Study, "study")


def chosen(words: list[str]) -> list[str]:
    """The studies that the words mean: "all", those of a paper ("000"), or one ("000", "fig1")."""
    wanted = " ".join(words)
    if wanted == "all":
        return list(STUDIES)
    whole = [name for name in STUDIES if name.split()[0] == wanted]
    return whole or [STUDIES[wanted].name]
