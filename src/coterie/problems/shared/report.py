"""Describe shared models in text, and show the users that deviate most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coterie.networks import Network
from coterie.problems.parts.report import SHOWN, Shown
from coterie.problems.rows import RowReport, count_used, intercept_text
from coterie.problems.shared.model import SharedModel
from coterie.problems.shared.problem import Shared
from coterie.run.certificate import Participant


class SharedReport(RowReport[Shared, SharedModel]):
    """The report of a shared model: its loss, its penalty, and the penalties of deviations."""

    def words(self, problem: Shared) -> str:
        return (
            f"{super().words(problem)}, deviations of users at {problem.mu:g}, of intercepts at "
            f"{problem.nu:g}"
        )

    def fitted(self, problem: Shared, data: str) -> str:
        return (
            f"A common model, and deviations of every user from it ({self.words(problem)}), were "
            f"fitted to {data}."
        )

    def described(self, settings: dict[str, Any]) -> str:
        own = settings["shared"]
        return f"{super().described(settings)}, users deviate at mu {own['mu']}, nu {own['nu']}"

    def call(self, problem: Shared) -> tuple[str, dict[str, Any]]:
        named = super().call(problem)[1]
        return "Shared", {**named, "mu": problem.mu, "nu": problem.nu}

    def parts(self, settings: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        return [*super().parts(settings), ("Deviations", {"name": "squared", **settings["shared"]})]

    def shown(self, model: SharedModel, participants: Sequence[Participant]) -> Shown:
        """The users with the largest deviations, and the norms of these deviations."""
        sizes = np.sqrt(np.square(model.deviations).sum(axis=1) + np.square(model.offsets))
        order = np.argsort(-sizes, kind="stable")[:SHOWN]
        bars = [(model.users[k], float(sizes[k])) for k in order.tolist() if sizes[k] > 0]
        if len(sizes) > SHOWN:
            which = f"The {SHOWN} users that deviate most"
        else:
            which = "How far every user deviates"
        explanation = (
            f"{which} from the common model: the length of what its coefficients and its "
            "intercept differ by."
        )
        if not bars:
            explanation = "No user deviates: this is one model for all."
        return Shown("deviations", explanation, ("user", "length of its deviation"), bars)

    def statistics(self, model: SharedModel, network: Network) -> dict[str, str]:
        if model.problem.intercept:
            intercept = intercept_text(model.intercept_)
        else:
            intercept = "none"
        return {
            "Coefficients": count_used(model.coef_),
            "Intercept": intercept,
            "Users": f"{len(model.users):,}",
        }
