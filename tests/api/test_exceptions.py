"""Nothing but a `CoterieError` or a status: numbers of any size, and Ctrl-C at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import coterie as co
from coterie.errors import NumericalError, arithmetic
from coterie.methods import METHODS
from coterie.numerics.losses import LOSSES

PENALTIES = {
    "none": {},
    "l2": {"strength": 1e-3},
    "l1": {"strength": 1e-2},
    "elasticnet": {"strength": 1e-2},
    "nonnegative": {},
    "box": {"lower": -1.0, "upper": 1.0},
    "l1ball": {"radius": 1.0},
    "group": {"strength": 0.1, "groups": (0, 0, 1, 1)},
}
FAMILIES = ("linear", "multiclass", "survival", "shared")
EVERY = [*LOSSES, "multinomial", "cox"]


def extreme_rows(random, loss):
    """Columns of all sizes, some constant or far from 0; labels that suit the loss, some huge;
    weights near 0.
    """
    n, d = int(random.choice([3, 12, 40])), 4
    X = random.standard_normal((n, d)) * 10.0 ** random.choice([-8, -3, 0, 3, 8], d)
    X = X + random.choice([0, 1e5, 1e8], d) * (random.random(d) < 0.3)
    if random.random() < 0.3:
        X[:, 0] = random.choice([0, 1, 1e6])
    size = 10.0 ** random.choice([-8, 0, 8])
    if loss == "multinomial":
        y = random.integers(0, 3, n)
    elif loss == "cox":
        y = co.survival_labels(random.exponential(size=n) * size, random.random(n) < 0.7)
    elif LOSSES[loss].kind == "classification":
        y = np.arange(n) % 2
    elif loss in ("poisson", "gamma"):
        y = random.poisson(3, n) * 10.0 ** random.choice([0, 8, 15]) + 1.0
    else:
        y = random.standard_normal(n) * size + random.choice([0, 1e9])
    if random.random() < 0.7:
        return X, y
    weights = np.where(random.random(n) < 0.3, random.choice([0.0, 1e-300]), random.random(n))
    return X, y, weights


def attempt(seed):
    """Solve one problem drawn from the seed; say how it ended."""
    random = np.random.default_rng(seed)
    split = str(random.choice(["samples", "features", "users"], p=[0.5, 0.4, 0.1]))
    loss, penalty = str(random.choice(EVERY)), str(random.choice([*PENALTIES]))
    able = [name for name, one in METHODS.items() if one.split == split and one.family in FAMILIES]
    method = str(random.choice(["auto", "auto", *able]))
    data = extreme_rows(random, loss)
    limits = {"tol": float(random.choice([1e-6, 1e-12])), "max_rounds": 15, "progress": False}
    try:
        if split == "users":
            problem = co.Shared(
                loss, penalty, mu=10.0 ** random.integers(-4, 2), **PENALTIES[penalty]
            )
            data, agents = (*data[:2], np.arange(len(data[0])) % 3), None
        else:
            intercept = bool(random.random() < 0.5) and loss != "cox"
            more = {"agent_strata": True} if loss == "cox" else {}
            problem, agents = (
                co.Problem(loss, penalty, intercept=intercept, **PENALTIES[penalty], **more),
                3,
            )
        return str(
            co.solve(problem, data, split=split, method=method, agents=agents, **limits).status
        )
    except co.CoterieError as error:
        return type(error).__name__


@pytest.mark.filterwarnings("ignore")
def test_numbers_of_any_size_end_in_a_status_or_in_words():
    ends = [attempt(seed) for seed in range(40)]
    assert set(ends) - {"InvalidProblem", "InvalidData"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("block", range(20))
def test_many_numbers_of_any_size_end_in_a_status_or_in_words(block):
    for seed in range(1000 + 50 * block, 1050 + 50 * block):
        attempt(seed)


@pytest.mark.parametrize(
    "error", [OverflowError("too large"), ZeroDivisionError(), np.linalg.LinAlgError("singular")]
)
def test_arithmetic_ends_in_words(error):
    with pytest.raises(NumericalError, match="left the range of numbers"), arithmetic():
        raise error
    with pytest.raises(ValueError, match="another"), arithmetic():
        raise ValueError("another")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", ["shared", "shared-newton"])
def test_common_models_survive_columns_of_large_mean(method):
    """The first step is far too long, and the losses along it overflow."""
    random = np.random.default_rng(3)
    tables = []
    for k, n in enumerate((15, 40, 40)):
        X = random.standard_normal((n, 2)) * 1e3 + 1e5
        means = np.exp(np.clip((X - 1e5) / 1e3 @ random.standard_normal(2), -5, 5))
        tables.append(co.Table(X, means * random.gamma(2, 0.5, n) + 1e-9, name=f"u{k}"))
    problem = co.Shared("gamma", "l2", strength=1e-2, mu=1e-4, nu=1e-2)
    result = co.solve(problem, tables, split="users", method=method, tol=1e-6, max_rounds=200)
    assert result.error is None
    assert result.status == "optimal"


@pytest.mark.parametrize("loss", ["poisson", "gamma"])
def test_the_steps_of_the_paper_need_a_bounded_slope(loss):
    random = np.random.default_rng(0)
    data = random.normal(size=(20, 4)), random.poisson(2, 20) + 1.0
    problem = co.Problem(loss, "l2", 0.1, intercept=False)
    how = {
        "split": "features",
        "agents": 2,
        "network": "path",
        "method": "graph-cp",
        "max_rounds": 5,
    }
    with pytest.raises(co.CoterieError, match=f"no such ρ for {loss}. Use variant='improved'"):
        co.solve(problem, data, variant="paper", **how)
    assert co.solve(problem, data, **how).error is None


# -- Ctrl-C ----------------------------------------------------------------------------------------


class Pressed:
    """Press Ctrl-C once, when so many functions of Coterie have been called."""

    def __init__(self, calls):
        self.left, self.total = calls, 0

    def __call__(self, frame, event, argument):
        if event == "call" and "coterie" in frame.f_code.co_filename:
            self.total += 1
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGINT)


def ended(calls, data, **how):
    """How a run ends in which Ctrl-C is pressed at that call."""
    press = Pressed(calls)
    sys.setprofile(press)
    try:
        return str(
            co.solve(co.Problem("logistic", "l1", 0.01, intercept=True), data, **how).status
        ), press.total
    except KeyboardInterrupt:
        return "KeyboardInterrupt", press.total
    finally:
        sys.setprofile(None)


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(),
    reason="signals reach the main thread",
)
@pytest.mark.parametrize("how", [{}, {"split": "features", "network": "ring"}])
def test_ctrl_c_at_any_moment_is_a_status_or_an_interrupt(how, monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    handler = signal.getsignal(signal.SIGINT)
    random = np.random.default_rng(1)
    X = random.normal(size=(40, 4))
    data, how = (
        (X, np.sign(X[:, 0] + random.normal(size=40))),
        {"agents": 2, "max_rounds": 6, "tol": 1e-12, **how},
    )
    whole, calls = ended(-1, data, **how)
    assert whole in ("optimal", "iteration_limit")
    moments = np.random.default_rng(2).integers(1, calls, 25).tolist()
    found = {ended(moment, data, **how)[0] for moment in moments}
    assert found <= {"interrupted", "KeyboardInterrupt", whole}
    assert signal.getsignal(signal.SIGINT) is handler


STOPPED = """
import builtins, coterie, signal, sys
left = int(sys.argv.pop(1))
usual = builtins.__import__
def press(*given, **more):
    global left
    left -= 1
    if left == 0:
        signal.raise_signal(signal.SIGINT)
    return usual(*given, **more)
builtins.__import__ = press
from coterie.__main__ import main
main()
"""


@pytest.mark.parametrize("moment", [30, pytest.param(2500, marks=pytest.mark.slow)])
def test_the_shell_says_that_it_was_stopped(moment, tmp_path):
    """Ctrl-C during an import may end in another exception; the shell knows why, and leaves no
    traceback.
    """
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{k % 7},{k % 2}\n" for k in range(40)))
    command = [
        sys.executable,
        "-c",
        STOPPED,
        str(moment),
        "fit",
        "a.csv",
        "--target",
        "y",
        "--loss",
        "logistic",
    ]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ}, timeout=280
    )
    assert run.returncode == co.Status.INTERRUPTED.exit_code
    assert "Traceback" not in run.stderr
    assert "stopped by hand before the end" in run.stderr
