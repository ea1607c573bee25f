"""What the studies of paper 001 share: the methods as published and ours beside them, and
accuracies by user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.api.result import Result
from coterie.api.solve import solve
from coterie.data import split as split_table
from coterie.numerics.arrays import FloatArray
from coterie.problems.personal.problem import Personal
from papers.datasets import Dataset
from papers.study import Claim, Curve, Numbers, spent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = "001: Dada, personalised boosting over a learned graph (Zantedeschi, Bellet, Tommasi)"
FIXED, LEARNED, LINEAR, OURS = "Dada fixed", "Dada learned", "perso-linear", "ours: Dada learned"
TUNED, KEPT, NOTEBOOK = (
    "Dada learned, tuned",
    "Dada learned, first graph kept",
    "Dada learned, notebook",
)
LINEAR_LEARNED = "perso-linear learned"
PUBLISHED = {"step": "frank-wolfe"}
ALONE, FIRST = 60, 40
"""Rounds in which Local converges before the graph starts, and in which a graph that is kept is
learned from it.
"""
PUBLISHED_GRAPH = {
    "graph_step": "gradient", "likeness": "models", "schedule": "paper", "alternations": 3, "alone": ALONE,
    "revisit": False,
}  # fmt: skip
KEPT_GRAPH = {**PUBLISHED_GRAPH, "alternations": 1, "graph_rounds": FIRST}
"""(3) to its optimum for the models of Local, once: what the paper's first graph is."""
METHODS: Mapping[str, tuple[str, dict[str, Any]]] = {
    FIXED: ("dada", PUBLISHED),
    LEARNED: ("dada", {**PUBLISHED, **PUBLISHED_GRAPH}),
    TUNED: ("dada", {**PUBLISHED, **PUBLISHED_GRAPH}),
    NOTEBOOK: ("dada", {**PUBLISHED, **PUBLISHED_GRAPH}),
    KEPT: ("dada", {**PUBLISHED, **KEPT_GRAPH}),
    OURS: ("dada", {"local_steps": 10, "alternations": 3}),
    LINEAR: ("perso-linear", {}),
    LINEAR_LEARNED: ("perso-linear", KEPT_GRAPH),
    "local": ("local", {}),
    "global": ("global", {}),
}
SETTLED = {"global": 40, "local": 60, OURS: 80}
"""After so many rounds these are not run on: their curves go on level, as the baselines' in the
paper.
"""
HEAD_START = {
    **dict.fromkeys((LEARNED, TUNED, NOTEBOOK), ALONE + 10),
    **dict.fromkeys((KEPT, LINEAR_LEARNED), ALONE + FIRST),
}
"""Rounds before models learn together: marks are counted from there, as in the paper."""
SOLVED = {"(3) solved, β = 1": 1.0, "(3) solved, β = 10": 10.0}
"""The first graph to its optimum, with the models of Local for that β."""
LINEAR_PRICES = {"beta": 1000.0, "mu": 0.1}
"""Of perso-linear, which bounds no norm, and has another loss: μ is the authors' program's."""
PROGRAM = {"mu": 0.1, "lam": 0.0125}
"""Of Dada-Learned on Moons in the authors' program, μ = 0.1 and λ = 1: it minimises

    d·l + (μ/2) (w·z − Σ log d + λ (μ/2) ‖w‖²),     z_kl = ‖α_k − α_l‖²,

which is (3) with λμ/8 in the place of λ for half the weights, and models do not see their scale."""
NOTEBOOK_PRICES = {"mu": 1.0, "lam": 12.5}
"""Of Dada-Learned in its notebook for Moons100, which has μ = 1 and λ = 100."""
CLEAR = 0.01
"""By how much an accuracy must be higher to count as higher: less is noise with 100 test rows a
user.
"""


def fit(
    data: Dataset,
    label: str,
    rounds: int,
    settings: Mapping[str, Any],
    seed: int,
    checkpoint: str | None = None,
    **changes: float,
) -> Result:
    """One method for so many rounds: as many wake-ups of each user on average. Goes on from the
    checkpoint, if any.

    `settings["graph"]` may have other parameters for learning the graph, `settings["learned"]`
    other prices.
    """
    name, options = METHODS[label]
    learned = "learned" in label or "graph" not in data.extras
    if "learned" in label:
        options = {**options, **settings.get("graph", {})}
    prices = {key: settings[key] for key in ("count", "beta", "mu", "lam")}
    prices |= LINEAR_PRICES if name == "perso-linear" else {}
    prices |= settings.get("learned", {}) if label in (LEARNED, KEPT) else {}
    prices |= NOTEBOOK_PRICES if label == NOTEBOOK else {}
    problem = Personal(**{**prices, **changes})
    return solve(
        problem, split_table(data.train, "users", data.extras["user_train"]), split="users", method=name,
        network="learned" if learned else data.extras["graph"], tol=1e-6, max_rounds=rounds, check_every=rounds,
        seed=seed, progress=False, checkpoint=checkpoint, **options,
    )  # fmt: skip


def accuracies(result: Result, data: Dataset, part: str = "test") -> FloatArray:
    """The share of right answers for every user, in their order."""
    table = data.test if part == "test" else data.train
    assert table is not None
    model: Any = result.model
    scores = model.score_per_user(table.X, table.y, data.extras[f"user_{part}"])
    return np.array([scores[user] for user in sorted(scores, key=lambda user: int(user))])


def folds(data: Dataset, count: int = 3, seed: int = 0) -> list[Dataset]:
    """The training rows of every user in so many parts, class by class, one of which is held out in
    turn.
    """
    users, labels, rng = data.extras["user_train"], data.train.y, np.random.default_rng(seed)
    assert labels is not None
    part = np.empty(len(users), int)
    for user in np.unique(users):
        rows = rng.permutation(np.flatnonzero(users == user))
        # Of three rows, two that are left would say the opposite of the third if classes were not
        # dealt out in turn.
        part[rows[np.argsort(labels[rows], kind="stable")]] = np.arange(len(rows)) % count
    found = []
    for out in range(count):
        inside, outside = np.flatnonzero(part != out), np.flatnonzero(part == out)
        own = {"user_train": users[inside], "user_test": users[outside]}
        parts = data.train.take_rows(inside), data.train.take_rows(outside)
        found.append(Dataset(*parts, {**data.extras, **own}, data.source))
    return found


def validated(
    data: Dataset, label: str, together: int, settings: Mapping[str, Any], **changes: float
) -> float:
    """Three-fold cross-validation at the users, the paper's: their mean accuracy on what was held
    out.

    `together`: rounds of learning together.
    """
    rounds = HEAD_START.get(label, 0) + min(together, SETTLED.get(label, together))
    own = {**settings, "learned": {}, **changes}
    scores = [np.mean(accuracies(fit(part, label, rounds, own, 0), part)) for part in folds(data)]
    return float(np.mean(scores))


def progress(
    make: Callable[[int], Dataset],
    labels: Sequence[str],
    settings: Mapping[str, Any],
    panels: Sequence[str],
) -> tuple[list[Curve], dict[str, Result]]:
    """Accuracy on training and test rows after some numbers of rounds, averaged over seeds; and the
    first seed's ends.

    `panels` names those of training accuracy, test accuracy, test accuracy against bits and, if
    wanted, neighbours.
    """
    marks, curves = settings["marks"], []
    ends: dict[str, Result] = {}
    for label in labels:
        train, test, bits, near = (np.zeros(len(marks)) for _ in range(4))
        for seed in settings["seeds"]:
            data, rounds = make(seed), 0
            with TemporaryDirectory() as folder:
                for place, mark in enumerate(marks):
                    wanted = HEAD_START.get(label, 0) + min(mark, SETTLED.get(label, mark))
                    if wanted > rounds:
                        rounds = wanted
                        result = fit(data, label, rounds, settings, seed, folder)
                    train[place] += np.mean(accuracies(result, data, "train"))
                    test[place] += np.mean(accuracies(result, data))
                    bits[place] += result.bill.bits
                    near[place] += result.model.weights.nnz / len(result.model.users)
            ends.setdefault(label, result)
        count, method = len(settings["seeds"]), METHODS[label][0]
        rounds_axis = np.array(marks, float)
        heights = (train / count, test / count, test / count, near / count)
        for panel, x, y in zip(
            panels, (rounds_axis, rounds_axis, bits / count, rounds_axis), heights, strict=False
        ):
            curves.append(Curve(panel, label, method, x, y, spent(result)))
    return curves, ends


def densified(near: Mapping[str, Curve], test: Mapping[str, Curve]) -> str:
    """What μ and λ do to the published alternation, in numbers of the same run."""
    return (
        f"With the μ and λ of the authors' program the learned graph has {near[LEARNED].last:.1f} "
        "neighbours and leads "
        f"to {test[LEARNED].last:.3f}; with those that three-fold cross-validation chooses (001 "
        "tuning) models are "
        f"pulled together before it is updated, and it has {near[TUNED].last:.1f} and leads to "
        f"{test[TUNED].last:.3f}."
    )


def common_claims(
    train: Mapping[str, Curve],
    test: Mapping[str, Curve],
    near: Mapping[str, Curve],
    evidence: str,
    truth: float,
) -> list[Claim]:
    """What the paper says of both Moons: of the graph that is given, and of the published learned
    one.

    `near`: how many neighbours a user has in the learned graphs; `truth`: in the given one.
    """
    over = {label: train[label].last - test[label].last for label in test}
    others = max(test[label].last for label in ("global", LINEAR))
    dense = {"tuned": TUNED, "notebook": NOTEBOOK, "ours": OURS}
    most = ", ".join(
        f"{name} {near[label].y.max():.1f}" for name, label in dense.items() if label in near
    )
    why = densified(near, test)
    higher = f"by less than {CLEAR} (our threshold)."
    return [
        Claim(
            "Dada-Fixed and Dada-Learned reduce the overfitting of Local.",
            max(over[FIXED], over[LEARNED]) <= over["local"] - CLEAR,
            "training less test accuracy: "
            + ", ".join(f"{label} {value:.3f}" for label, value in over.items()),
            fails_if=f"one of them has training less test accuracy below that of Local {higher}",
        ),
        Claim(
            "Dada-Fixed has a higher test accuracy than Global and Perso-linear.",
            test[FIXED].last >= others + CLEAR,
            evidence,
            fails_if=f"it is above one of them {higher}",
        ),
        Claim(
            "Dada-Learned has a higher test accuracy than Global and Perso-linear.",
            test[LEARNED].last >= others + CLEAR,
            "the same numbers",
            why,
            cause="settings",
            fails_if=f"it is above one of them {higher}",
        ),
        Claim(
            "Dada-Learned makes up for not knowing the graph: it is better than Local.",
            test[LEARNED].last >= test["local"].last + CLEAR,
            "the same numbers",
            why,
            cause="settings",
            fails_if=f"it is above Local {higher}",
        ),
        Claim(
            (
                "The learned graph is always sparser than the true one (43 against 61 neighbours "
                "on "
                "the paper's Moons100)."
            ),
            0 < float(near[LEARNED].y.max()) < truth,
            f"at most {near[LEARNED].y.max():.1f} neighbours ({most}) against {truth:.1f}",
            why,
            cause="settings",
            fails_if="it has no edge, or as many neighbours as the true one at one mark.",
        ),
    ]


def drawn(
    numbers: Numbers,
    axes: Mapping[str, tuple[str, str]],
    columns: int = 3,
    log_x: Sequence[str] = (),
) -> Figure:
    """Panels of accuracies: the learned graph as published is dashed or dotted, ours in ink, what
    solves (3) ochre.
    """
    from coterie.report.figures import GREY, INK, OCHRE, PURPLE, colour
    from papers.drawing import DASHED, DOTTED, SOLID, panels

    hues = {OURS: INK, NOTEBOOK: GREY, **dict(zip(SOLVED, (OCHRE, PURPLE), strict=True))}
    strokes = {
        **dict.fromkeys((LEARNED, NOTEBOOK, LINEAR_LEARNED), DASHED),
        **dict.fromkeys((TUNED, KEPT), DOTTED),
    }
    return panels(
        numbers, list(axes), axes, columns=columns, log_x=log_x, log_y=False,
        hue=lambda c: hues.get(c.label, colour(c.method)), stroke=lambda c: strokes.get(c.label, SOLID),
    )  # fmt: skip
