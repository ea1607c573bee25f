"""Models of several classes in words, and a picture of the weight of each column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.networks import Network
from coterie.problems.multiclass.loss import Softmax
from coterie.problems.multiclass.model import MulticlassModel
from coterie.problems.parts.report import SHOWN, Shown
from coterie.problems.problem import Problem
from coterie.problems.rows import RowReport, count_used
from coterie.run.certificate import Participant


class MulticlassReport(RowReport[Problem[Softmax], MulticlassModel]):
    """A loss, a penalty, and the lengths of coefficients."""

    def shown(self, model: MulticlassModel, participants: Sequence[Participant]) -> Shown:
        """The length of the coefficients of each column."""
        sizes = np.linalg.norm(model.coef_, axis=0)
        order = np.argsort(-sizes, kind="stable")[:SHOWN]
        names = model.columns or [f"column {j}" for j in range(len(sizes))]
        bars = []
        for j in order.tolist():
            if sizes[j] > 0 and np.isfinite(sizes[j]):
                bars.append((names[j], float(sizes[j])))
        explanation = (
            "The weight of a column: the length of its coefficients over all classes, largest "
            "first. They can only be compared if the columns are on the same scale."
        )
        if not bars:
            explanation = "Every coefficient is zero: the model does not use any column."
        return Shown("coefficients", explanation, ("column", "length of its coefficients"), bars)

    def statistics(self, model: MulticlassModel, network: Network) -> dict[str, str]:
        if model.problem.intercept:
            intercept = "one for each class"
        else:
            intercept = "none"
        return {"Coefficients": count_used(model.coef_), "Intercept": intercept}
