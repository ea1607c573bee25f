"""Low-rank models in words, and a picture of their singular values."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.networks import Network
from coterie.problems.low_rank.model import LowRankModel
from coterie.problems.low_rank.tasks import Task
from coterie.problems.parts.report import Shown
from coterie.problems.problem import Problem
from coterie.problems.rows import RowReport
from coterie.run.certificate import Participant


class LowRankReport(RowReport[Problem[Task], LowRankModel]):
    """A task, a penalty of a matrix, and singular values."""

    def shown(self, model: LowRankModel, participants: Sequence[Participant]) -> Shown:
        """The singular values."""
        explanation = (
            "The model is a matrix made of few patterns. Each singular value is the weight of a "
            "pattern; where the values fall steeply, a few patterns explain nearly everything."
        )
        bars = []
        for k, value in enumerate(model.s.tolist(), 1):
            if value > 0:
                bars.append((str(k), float(value)))
        return Shown("singular-values", explanation, ("pattern", "singular value"), bars)

    def statistics(self, model: LowRankModel, network: Network) -> dict[str, str]:
        intercept = "none"
        if model.b is not None:
            of_entries = model.a is not None
            if of_entries:
                intercept = "means of all entries, rows and columns"
            else:
                intercept = "one for each column of W"
        return {
            "Shape": f"{len(model.U):,} × {len(model.V):,}",
            "Rank": f"{model.rank_:,}",
            "Intercept": intercept,
        }
