"""Describe personal models in text, and show a lower bound of the accuracy of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coterie.networks import Network
from coterie.problems.parts.report import SHOWN, Report, Shown, intercept_words, spelt
from coterie.problems.personal.model import PersonalModel
from coterie.problems.personal.problem import Personal
from coterie.run.certificate import Participant


class PersonalReport(Report[Personal, PersonalModel]):
    """The report of a personal model: its loss, its constraint, and the graph of similar users."""

    def words(self, problem: Personal) -> str:
        intercept = intercept_words(self.has_intercept(problem.settings()))
        return f"a model per user, {problem.norm} norm at most {problem.beta:g}, {intercept}"

    def described(self, settings: dict[str, Any]) -> str:
        (_, loss), (_, ball), (_, own), _ = self.parts(settings)
        intercept = intercept_words(self.has_intercept(settings))
        return f"a model per user, {loss['name']} loss, {spelt(ball)}, {spelt(own)}, {intercept}"

    def call(self, problem: Personal) -> tuple[str, dict[str, Any]]:
        own = {
            name: value
            for name, value in problem.settings()["personal"].items()
            if value is not None
        }
        if isinstance(own["predictors"], str):
            named = own["predictors"]
        else:
            named = own["predictors"]["name"]
        chosen = ("count", "beta", "mu", "lam", "delta", "norm", "constant", "hinge")
        return "Personal", {"predictors": named} | {
            name: own[name] for name in chosen if name in own
        }

    def parts(self, settings: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        own = {name: value for name, value in settings["personal"].items() if value is not None}
        predictors = own.pop("predictors")
        norm = own.pop("norm")
        beta = own.pop("beta")
        if isinstance(predictors, str):
            named = predictors
        else:
            named = predictors["name"]
        loss = {"name": "log-sum", "of a user": "log Σ exp(−margin)"}
        if own.pop("hinge", False):
            loss = {"name": "mean hinge", "of a user": "mean of max(0, 1 − margin)"}
        return [
            ("Loss", loss),
            ("Constraint", {"name": f"{norm} ball", "radius": beta}),
            ("Personal", {"name": f"{named} predictors", **own}),
            (
                "Intercept",
                {"name": "yes, one for every user" if self.has_intercept(settings) else "no"},
            ),
        ]

    def has_intercept(self, settings: dict[str, Any]) -> bool:
        """Whether every user has an intercept. Linear predictors have one unless the loss is hinge;
        stumps have one only if `constant` is set.
        """
        own = settings["personal"]
        if isinstance(own["predictors"], str):
            predictors = {"name": own["predictors"]}
        else:
            predictors = own["predictors"]
        if predictors["name"] == "linear":
            return bool(predictors.get("constant", not own.get("hinge", False)))
        return bool(own.get("constant", False))

    def fitted(self, problem: Personal, data: str) -> str:
        return "A model was fitted for each of them, close to the models of similar users."

    def shown(self, model: PersonalModel, participants: Sequence[Participant]) -> Shown:
        """Every user with a lower bound of the share of its own rows that its model classifies
        correctly; the lowest first.

        A misclassified row has a margin of at most 0. The number of errors is therefore at most
        Σ_i exp(−margin_i) = exp(L_k), and at most Σ_i max(0, 1 − margin_i).
        """
        rows = np.array([participant.rows for participant in participants])
        if model.problem.hinge:
            bound = model.losses * rows
        else:
            bound = np.exp(model.losses)
        errors = zip(participants, bound, strict=True)
        least = [
            (participant.name, max(1.0 - float(wrong) / participant.rows, 0.0))
            for participant, wrong in errors
            if participant.rows
        ]
        if len(least) > SHOWN:
            which = f"The {SHOWN} users with the lowest"
        else:
            which = "For each user, the"
        explanation = (
            f"{which} share of its own rows that its model classifies rightly: at least so much, "
            "by a bound that the "
            "loss gives. It is no statement about new rows."
        )
        bars = sorted(least, key=lambda bar: bar[1])
        return Shown("accuracies", explanation, ("user", "right, at least"), bars, shares=True)

    def statistics(self, model: PersonalModel, network: Network) -> dict[str, str]:
        if self.has_intercept(model.problem.settings()):
            intercept = "one for every user"
        else:
            intercept = "none"
        return {
            "Intercept": intercept,
            "Shape": " × ".join(f"{length:,}" for length in model.coef_.shape),
            "Users": f"{len(model.users):,}",
            "Links between them": f"{network.n_edges:,}",
            "Base predictors used": f"{model.coef_.nnz / max(len(model.users), 1):.3g} per user",
        }
