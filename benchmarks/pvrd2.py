"""Diffusion learning over a ring of eight agents: iterations a second, epochs to an accuracy, and a
picture.

    python benchmarks/pvrd2.py                     the first digits 0 and 1 of MNIST, and correlated
    columns
    python benchmarks/pvrd2.py --long              MNIST 0/1 whole: 40 epochs with several pipelines
    (minutes)
    python benchmarks/pvrd2.py --picture w.png     w at each agent beside the pooled w*

MNIST is looked for in the folder that COTERIE_DATA names.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # for papers/

from coterie import Problem
from coterie.data import encode_labels, validated_all
from coterie.methods import method as find_method
from coterie.networks import Network, ring
from coterie.run.bill import Bill
from coterie.run.certificate import introduce
from coterie.run.setup import make_agents
from coterie.run.tables import gather
from coterie.transport.in_process import InProcess
from papers import datasets

AGENTS = 8
PIXEL_ROWS = (4, 4, 4, 4, 3, 3, 3, 3)
STRIPS = tuple(28 * rows for rows in PIXEL_ROWS)
"""Every agent sees a horizontal strip of the 28 × 28 pixels."""
ACCURACY = 1e-6
"""Of ‖w − w*‖² / ‖w*‖²."""
DIVERGED = 1e9


class Run:
    """A method on the embedded engine, round by round, with the States in sight."""

    def __init__(
        self, problem, data, network: Network, agents=AGENTS, method="pvrd2", seed=0, **parameters
    ):
        classification = problem.loss.kind == "classification"
        tables = validated_all(
            gather(data, "features", agents), split="features", classification=classification
        )
        tables, _ = encode_labels(tables, classification)
        self.method = find_method(method, **parameters)
        self.method.check(problem, network)
        self.transport = InProcess(network, Bill(network))
        self.agents = make_agents(tables, problem, "features", network, seed)
        statistics = self.transport.converse([introduce(agent) for agent in self.agents], "setup")
        self.agents = [
            replace(agent, statistics=known)
            for agent, known in zip(self.agents, statistics, strict=True)
        ]
        self.states = self.transport.converse(
            [self.method.start(agent) for agent in self.agents], "setup"
        )
        self.rounds = 0

    def round(self) -> np.ndarray:
        """Take one round, and return the model of all agents together."""
        self.rounds += 1
        protocols = [
            self.method.round(a, s, self.rounds)
            for a, s in zip(self.agents, self.states, strict=True)
        ]
        self.states = self.transport.converse(protocols, "rounds")
        self.transport.bill.end_round()
        return self.w

    @property
    def w(self) -> np.ndarray:
        return np.concatenate([state.w for state in self.states])

    def errors(self, best: np.ndarray) -> Iterator[float]:
        """‖w − w*‖² / ‖w*‖² after each round."""
        while True:
            yield float(np.sum((self.round() - best) ** 2) / np.sum(best**2))


def epochs_to(
    run: Run, best: np.ndarray, accuracy: float = ACCURACY, limit: int = 400
) -> int | None:
    """How many rounds the run needs, or None if it diverges or does not get there within the
    limit.
    """
    for epoch, error in enumerate(itertools.islice(run.errors(best), limit), 1):
        if error <= accuracy:
            return epoch
        if error > DIVERGED:
            return None
    return None


def correlated(
    n: int = 1000, factor: float = 1.0, d: int = 40, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Regression on columns that share a factor: what the agents know overlaps, and consensus is
    the hard part.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + factor * rng.standard_normal((n, 1))
    return X, X @ rng.standard_normal(d) / np.sqrt(d) + 0.1 * rng.standard_normal(n)


def zeros_and_ones(rows: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The first digits 0 and 1 of MNIST, labels −1 and 1."""
    train = datasets.mnist(digits=[0, 1]).train
    return train.X[:rows], 2 * train.y[:rows] - 1


def minimiser(problem: Problem, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The pooled w*, by Newton's method with the squared or the logistic loss."""
    n, d = X.shape
    w = np.zeros(d)
    for _ in range(50):
        scores = X @ w
        gradients = problem.loss.gradient(scores, y)
        curvature = (
            np.ones(n)
            if problem.loss.name == "squared"
            else np.abs(gradients) * (1 - np.abs(gradients))
        )
        gradient = X.T @ gradients / n + problem.penalty.strength * w
        move = np.linalg.solve(
            (X.T * curvature) @ X / n + problem.penalty.strength * np.eye(d), gradient
        )
        w -= move
        if np.linalg.norm(move) <= 1e-14 * np.linalg.norm(w):
            break
    return w


def largest_curvature(problem: Problem, X: np.ndarray) -> float:
    """L_max: the largest curvature of one sample's loss with the penalty."""
    return problem.loss.smoothness * float((X**2).sum(1).max()) + problem.penalty.strength


def iterations_per_second(pipeline: int, rows: int | None = None, repeat: int = 3) -> float:
    """Single-sample iterations a second of all eight agents together, on one core: the best of a
    few rounds.
    """
    run = Run(
        Problem("logistic", "l2", 1e-2, intercept=False),
        zeros_and_ones(rows),
        ring(AGENTS),
        STRIPS,
        pipeline=pipeline,
    )
    run.round()  # compiles, or loads what was compiled
    seconds = []
    for _ in range(repeat):
        began = time.process_time()
        run.round()
        seconds.append(time.process_time() - began)
    return len(run.states[0].memory) / min(seconds)


def picture(path: str | Path, epochs: int = 12, rows: int | None = None) -> Path:
    """Draw what each agent knows of w after some epochs, strip by strip, beside the pooled w*."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    problem, (X, y) = Problem("logistic", "l2", 1e-2, intercept=False), zeros_and_ones(rows)
    best = minimiser(problem, X, y)
    run = Run(problem, (X, y), ring(AGENTS), STRIPS)
    seen = {0: run.w}
    for _ in range(epochs):
        w = run.round()
        seen[run.rounds] = w
    bound = float(np.abs(best).max())
    figure, axes = plt.subplots(1, 4, figsize=(12, 3.1), layout="constrained")
    middle = max(1, epochs // 6)
    for axis, (title, w) in zip(
        axes,
        [
            ("after 1 epoch", seen[1]),
            (f"after {middle} epochs", seen[middle]),
            (f"after {epochs} epochs", seen[epochs]),
            ("pooled w*", best),
        ],
        strict=True,
    ):
        image = axis.imshow(
            w.reshape(28, 28), cmap="RdBu", vmin=-bound, vmax=bound, interpolation="nearest"
        )
        for edge in np.cumsum(PIXEL_ROWS)[:-1] if w is not best else ():
            axis.axhline(edge - 0.5, color="0.4", linewidth=0.8)
        if w is not best:
            middles = np.cumsum(PIXEL_ROWS) - np.array(PIXEL_ROWS) / 2 - 0.5
            axis.set_yticks(middles, [f"agent {k}" for k in range(AGENTS)], fontsize=7)
        else:
            axis.set_yticks([])
        axis.set_xticks([])
        axis.set_title(title, fontsize=10)
    figure.colorbar(image, ax=axes, shrink=0.8)
    figure.suptitle(
        "MNIST 0 against 1: every agent learns the coefficients of its own strip of pixels",
        fontsize=11,
    )
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return Path(path)


def table(problem: Problem, data, agents, limit: int) -> None:
    """Epochs to the accuracy for pipelines of several lengths, plain and Chebyshev, all with the
    step ½ / L_max.
    """
    best = minimiser(problem, *data)
    step = 0.5 / largest_curvature(problem, data[0])
    print("| J | A^J | Chebyshev |\n|---|---|---|")
    for length in (1, 2, 3, 5, 8, 12):
        needed = []
        for chebyshev in (False, True):
            run = Run(
                problem, data, ring(AGENTS), agents, pipeline=length, chebyshev=chebyshev, step=step
            )
            needed.append(epochs_to(run, best, limit=limit))
        print(
            f"| {length} | "
            + " | ".join("–" if epochs is None else str(epochs) for epochs in needed)
            + " |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--long", action="store_true", help="40 epochs of all digits 0 and 1, several pipelines"
    )
    parser.add_argument(
        "--picture",
        metavar="PNG",
        help="draw w at each agent beside the pooled w*, and nothing else",
    )
    chosen = parser.parse_args()
    if chosen.picture:
        print(picture(chosen.picture))
        return

    for length in (1, 5, 8, 12):
        print(
            f"J = {length}: {iterations_per_second(length):,.0f} iterations a second (limit 20,000)"
        )
    print(
        f"\nepochs to {ACCURACY:g} on a ring of {AGENTS}: correlated columns, 1000 × 40, squared "
        "loss, l2 0.01"
    )
    table(Problem("squared", "l2", 1e-2, intercept=False), correlated(), AGENTS, limit=400)
    print(
        f"\nepochs to {ACCURACY:g} on a ring of {AGENTS}: 2000 zeros and ones of MNIST, logistic "
        "loss, l2 0.01"
    )
    table(Problem("logistic", "l2", 1e-2, intercept=False), zeros_and_ones(2000), STRIPS, limit=150)
    if chosen.long:
        problem, data = Problem("logistic", "l2", 1e-2, intercept=False), zeros_and_ones()
        best = minimiser(problem, *data)
        step = 0.5 / largest_curvature(problem, data[0])
        plain, filtered = {"chebyshev": False, "step": step}, {"chebyshev": True, "step": step}
        runs = [(f"pvrd2, J = {length}", {"pipeline": length, **plain}) for length in (3, 5, 8, 16)]
        runs += [
            (f"pvrd2, J = {length}, Chebyshev", {"pipeline": length, **filtered})
            for length in (3, 5, 8)
        ]
        runs += [("full gradient", {"method": "dynamic-diffusion"})]
        print(
            "\n| MNIST 0/1, ring of 8 | log10 error after 10 | 20 | 40 epochs |\n|---|---|---|---|"
        )
        for title, settings in runs:
            errors = list(
                itertools.islice(
                    Run(problem, data, ring(AGENTS), STRIPS, **settings).errors(best), 40
                )
            )
            print(
                f"| {title} | "
                + " | ".join(f"{np.log10(errors[epoch - 1]):.2f}" for epoch in (10, 20, 40))
                + " |"
            )


if __name__ == "__main__":
    main()
