"""Constants that steer a method: each says where it comes from, and none is so fragile that a run
depends on it.

Each is halved and doubled on problems that it was not chosen on, and the bits of a whole run are
compared. By default one run of each `Tuning` is looked at; `-m slow` looks at all of them and
prints what was measured.
"""

from __future__ import annotations

import ast
import functools
import importlib
import pkgutil
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris, load_wine

import coterie as co
from coterie.numerics.tuning import SOURCES, Tuning

PACKAGES = ("methods", "numerics.acceleration", "problems")
SLACK = 1.1
"""Certificates come now and then, so a run that is ready a round later may be noticed later."""


def modules():
    for name in PACKAGES:
        package = importlib.import_module(f"coterie.{name}")
        for info in pkgutil.walk_packages(package.__path__, f"coterie.{name}."):
            yield importlib.import_module(info.name)
    yield importlib.import_module("coterie.run.rounds")
    yield importlib.import_module("coterie.run.rescue")
    yield importlib.import_module("coterie.run.stopping")


TUNINGS = {
    module.__name__.removeprefix("coterie."): module
    for module in modules()
    if hasattr(module, "TUNING")
}

# -- problems that nobody tuned on -----------------------------------------------------------------


def _scaled(X):
    return (X - X.mean(axis=0)) / X.std(axis=0)


@functools.cache
def data(name):
    rng = np.random.default_rng(20261116)
    if name == "wine":
        X, y = load_wine(return_X_y=True)
        return _scaled(X), np.where(y == 1, 1.0, -1.0)
    if name == "wines":
        X, y = load_wine(return_X_y=True)
        return np.hstack([_scaled(X), _scaled(X**2), _scaled(np.log1p(X))]), y
    if name == "iris":
        X, y = load_iris(return_X_y=True)
        return np.hstack([_scaled(X), _scaled(X**2)]), np.where(y == 1, 1.0, -1.0)
    if name == "heavy":
        X = rng.standard_t(3, (160, 12)) * np.logspace(0, 1, 12)
        return X, X[:, :4] @ [3.0, -1.0, 0.5, 0.1] + rng.standard_t(3, 160)
    if name == "rare":
        X = sp.random_array((200, 40), density=0.1, rng=rng, format="csr")
        return X, np.sign(X @ rng.standard_normal(40) + 0.1 * rng.standard_normal(200))
    if name == "many rare":
        X = sp.random_array((300, 900), density=0.015, rng=rng, format="csr")
        return X, np.sign(X @ rng.standard_normal(900) + 0.1 * rng.standard_normal(300))
    if name == "correlated":
        X = rng.standard_normal((400, 100)) * np.arange(1.0, 101.0) ** -2
        X = X @ np.linalg.qr(rng.standard_normal((100, 100)))[0] / X.std()
        return X, np.sign(X @ rng.standard_normal(100) + 0.5 * rng.standard_normal(400))
    if name == "users":
        X, y = data("iris")
        return X, y, rng.integers(0, 6, len(y))
    if name == "two":
        X, y = data("wine")
        return X, np.column_stack([y, X[:, 0], X[:, 1] ** 2])
    if name == "times":
        X, y = data("wine")
        return X, co.survival_labels(np.ceil(9 * rng.exponential(np.exp(-X[:, 0]))), y > 0)
    if name == "entries":
        pairs = np.argwhere(rng.random((40, 30)) < 0.4)
        W = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 30))
        return pairs.astype(float), W[*pairs.T] + 0.2 * rng.standard_normal(len(pairs))
    if name == "three":
        return data("wine")[0], load_wine(return_X_y=True)[1]
    raise KeyError(name)


PROBLEMS = {
    "heavy huber": (co.Problem("huber", "l2", 1e-2, intercept=True), "heavy"),
    "wine logistic": (co.Problem("logistic", "l2", 1e-2, intercept=False), "wine"),
    "rare logistic l1": (co.Problem("logistic", "l1", 3e-3, intercept=True), "rare"),
    "many rare l1": (co.Problem("logistic", "l1", 3e-4, intercept=False), "many rare"),
    "iris hinge": (co.Problem("hinge", "l2", 1e-2, intercept=False), "iris"),
    "wine hinge l1": (co.Problem("hinge", "l1", 1e-2, intercept=False), "wine"),
    "wine squared": (co.Problem("squared", "l2", 1e-2, intercept=False), "wine"),
    "correlated logistic": (co.Problem("logistic", "l2", 1e-7, intercept=False), "correlated"),
    "users": (co.Personal(beta=5, mu=1.0, count=20), "users"),
    "users in common": (co.Shared("logistic", "l1", 3e-3, mu=3e-3), "users"),
    "low rank": (co.Problem("squared", "traceball", radius=4.0), "two"),
    "classes of low rank": (co.Problem("multinomial", "traceball", radius=4.0), "three"),
    "entries in stages": (
        co.Problem("completion", "traceball", radius=30.0, shape=(40, 30), stages=3),
        "entries",
    ),
    "iris hinge in a box": (
        co.Problem("hinge", "box", lower=-0.5, upper=np.inf, intercept=True),
        "iris",
    ),
    "wine hinge in a ball": (co.Problem("hinge", "l1ball", radius=2.0, intercept=False), "wine"),
    "wine in a ball": (co.Problem("logistic", "l1ball", radius=2.0, intercept=False), "wine"),
    "wine squared in a ball": (
        co.Problem("squared", "l1ball", radius=1.0, intercept=False),
        "wine",
    ),
    "heavy absolute": (co.Problem("absolute", "elasticnet", 1e-2, intercept=False), "heavy"),
    "wines softmax": (co.Problem("multinomial", "l2", 1e-2, intercept=True), "wines"),
    "wines softmax l1": (co.Problem("multinomial", "l1", 1e-2, intercept=True), "wines"),
    "wine times l1": (co.Problem("cox", "l1", 1e-2, agent_strata=True), "times"),
}
SMOOTH = ("wine logistic", "heavy huber", "rare logistic l1")
KINKS = ("wine hinge l1", "iris hinge", "heavy absolute")
RUN = {"agents": 4, "tol": 1e-5, "max_rounds": 6000, "progress": False}
COLUMNS = {"split": "features", "network": "ring"}


def runs(methods, problems, **options):
    return [
        {"method": method, "problem": problem, **options}
        for problem in problems
        for method in methods
    ]


BOUNDED = ("iris hinge in a box", "wine hinge in a ball")
INTERIOR = runs(["interior-point"], [*KINKS, *BOUNDED])
CASES = {
    "numerics.acceleration.anderson": runs(["proximal-2", "proximal-1"], SMOOTH),
    "numerics.acceleration.halpern": [
        *runs(["proximal-1", "proximal-2"], KINKS[:1]),
        *runs(["proximal-1", "proximal-2"], KINKS[:1], agents=2),
        *runs(["graph-cp", "tree"], ["heavy huber"], **COLUMNS),
    ],
    "methods.second_order.newton": [
        {"problem": p} for p in ("wines softmax", "wines softmax l1", "wine times l1")
    ],
    "methods.second_order.linear": runs(["newton"], [*SMOOTH, "many rare l1"]),
    "methods.second_order.rows": runs(["newton"], ["heavy huber"]),
    "methods.line_search": runs(["newton"], [*SMOOTH, "many rare l1"]),
    "methods.published.diffusion_rows": runs(["pvrd2"], ["wine logistic"], **COLUMNS),
    "methods.second_order.sampled_rows": runs(["newton"], ["wine logistic"]),
    "methods.quasi_newton.curved_pairs": runs(["lbfgs-rows"], ["wine logistic", "wine squared"]),
    "methods.columns.pooled": runs(["blocks"], ["wine logistic", "iris hinge"], **COLUMNS),
    "methods.second_order.quadratic_models": runs(
        ["newton"], ["wine logistic"], hessian="products"
    ),
    "methods.second_order.working_set": runs(["newton"], ["many rare l1"]),
    "methods.second_order.low_rank_model": runs(["newton"], ["many rare l1"]),
    "numerics.acceleration.relaxation": runs(
        ["proximal-2"], ["iris hinge", "wine logistic"], acceleration="relaxation"
    ),
    "methods.columns.chambolle_pock": runs(
        ["graph-cp", "tree"], ["heavy huber", "wine logistic"], **COLUMNS
    ),
    "methods.auto.costs": runs(["auto"], PROBLEMS, link=(0.02, 1e8)),
    "problems.personal.methods.dada": [{"method": "dada", "problem": "users", "max_rounds": 60}],
    "problems.shared.methods.deviations": [{"method": "shared", "problem": "users in common"}],
    "methods.primal_dual.dual_block": runs(["proximal-1"], [*SMOOTH, *KINKS]),
    "problems.low_rank.methods.frank_wolfe": runs(
        ["dfw-trace"], ["low rank", "classes of low rank"], step="search", tol=3e-2
    ),
    "methods.columns.graph_cp": runs(
        ["graph-cp"], ["heavy huber", "wine logistic", "iris hinge"], **COLUMNS
    ),
    "methods.published.mixing_filter": runs(["pvrd2"], ["wine logistic"], **COLUMNS, tol=1e-3),
    "problems.personal.methods.personal_baselines": [
        {"method": "global", "problem": "users", "tol": 1e-3}
    ],
    "problems.personal.methods.perso_linear": [
        {"method": "perso-linear", "problem": "users", "tol": 3e-2, "max_rounds": 300}
    ],
    "methods.primal_dual.rules": runs(["proximal-1", "proximal-2"], [*SMOOTH, *KINKS[:2]]),
    "methods.primal_dual.relay": [
        *runs(["relay"], ["wine logistic"]),
        *runs(["relay"], ["iris hinge"], tol=1e-3),
    ],
    "run.rescue": runs(["auto"], ["correlated logistic"], link=(1e-3, 3e6), tol=1e-6),
    "run.rounds": runs(["proximal-1"], ["iris hinge", "wine logistic"]),
    "run.stopping": runs(["proximal-2", "gram"], ["wine squared", "iris hinge"])[:3],
    "methods.second_order.interior_point": INTERIOR,
    "methods.second_order.semismooth": runs(["semismooth"], ["iris hinge"]),
    "problems.low_rank.methods.subspace": runs(["dfw-subspace"], ["entries in stages"]),
    "problems.low_rank.methods.inner_steps": runs(["dfw-subspace"], ["classes of low rank"]),
    "methods.columns.envelope": runs(["lbfgs"], KINKS, **COLUMNS),
    "methods.quasi_newton.lbfgs": runs(["lbfgs"], [*SMOOTH, *KINKS[:1]], **COLUMNS),
    "methods.quasi_newton.rounds": runs(
        ["lbfgs"], ["rare logistic l1", "wine hinge l1"], **COLUMNS
    ),
    "methods.quasi_newton.pairs": runs(["lbfgs"], ["rare logistic l1", "wine hinge l1"], **COLUMNS),
    "methods.columns.blocks": runs(["blocks"], ["wine hinge l1", "rare logistic l1"], **COLUMNS),
    "methods.second_order.inside": runs(["newton"], ["wine in a ball"]),
    "methods.second_order.quadratic": [
        *runs(["newton"], ["rare logistic l1"]),
        *runs(["newton", "gram"], ["wine squared in a ball"]),
    ],
    "methods.second_order.central_path": INTERIOR,
    "methods.second_order.barriers.barrier": INTERIOR[::-1],
}
"""Which runs a `Tuning` steers: the first is the one of the default run."""


def bits(problem, **options):
    """What a run to the tolerance sends; infinite if it does not get there."""
    statement, name = PROBLEMS[problem]
    split = {"split": "users", "agents": None} if name == "users" else {}
    result = co.solve(statement, data(name), **{**RUN, **options, **split})
    return (
        result.bill.total.bits if result.status.success or options["method"] == "dada" else np.inf
    )


@functools.cache
def usual(name, case):
    """What that run sends as it is."""
    found = bits(**CASES[name][case])
    assert np.isfinite(found), CASES[name][case]
    return found


def cost(name, case, changed):
    """By what factor that change raises the bits of that run."""
    before = usual(name, case)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TUNINGS[name], "TUNING", changed)
        return bits(**CASES[name][case]) / before


CHANGES = [
    (name, what, changed)
    for name, module in TUNINGS.items()
    for what, changed in module.TUNING.changed()
]


def bound(name, what):
    return SLACK * TUNINGS[name].TUNING.origins()[what.split()[0]].costs


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("name", "what", "changed"), CHANGES, ids=lambda x: x if isinstance(x, str) else ""
)
def test_no_constant_is_fragile(name, what, changed):
    assert cost(name, 0, changed) <= bound(name, what)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "what", "changed"), CHANGES, ids=lambda x: x if isinstance(x, str) else ""
)
def test_no_constant_is_fragile_anywhere(name, what, changed):
    costs = [cost(name, case, changed) for case in range(len(CASES[name]))]
    print(f"{name}: {what}: {' '.join(f'{c:.2f}' for c in costs)}")
    assert max(costs) <= bound(name, what)


@pytest.mark.parametrize("name", TUNINGS)
def test_every_constant_says_where_it_comes_from(name):
    tuning = TUNINGS[name].TUNING
    assert isinstance(tuning, Tuning)
    assert [field.name for field in fields(tuning)], "a Tuning without a constant"
    for constant, origin in tuning.origins().items():
        assert origin.meaning.endswith("."), f"{name}.{constant}"
        kind, _, where = origin.source.partition(": ")
        assert kind in SOURCES, f"{name}.{constant}: {origin.source}"
        assert len(where) > 10, f"{name}.{constant}: {origin.source}"
    assert name in CASES, "say in CASES which runs it steers"


def test_a_change_is_half_and_double():
    changes = dict(TUNINGS["numerics.acceleration.halpern"].TUNING.changed())
    usual = TUNINGS["numerics.acceleration.halpern"].TUNING
    assert (changes["few halved"].few, changes["few doubled"].few) == (1, 4)
    assert changes["some halved"].some == usual.some / 2
    assert usual.some < changes["some doubled"].some < 1
    assert usual == TUNINGS["numerics.acceleration.halpern"].TUNING, "and the Tuning itself stays"


# -- constants that are in no Tuning ---------------------------------------------------------------

PLAIN = {
    "methods/second_order/careful.py: PASSES": "how often a dual is refined",
    "methods/second_order/careful.py: FACE": "when a coefficient is 0 up to rounding",
    "methods/second_order/careful.py: DEPENDENT": "when columns depend on others up to rounding",
    "methods/second_order/careful.py: ROUNDINGS": "what solving equations loses",
    "methods/second_order/careful.py: TURNS": "when to give up",
    "methods/second_order/careful.py: WORK": "when to give up",
    "methods/second_order/careful.py: SATISFIED": "when a slope is 0 up to rounding",
    "methods/second_order/careful.py: LEAST": "when there is no secant",
    "methods/second_order/quadratic.py: FLAT": "when a valley is flat up to rounding",
    "methods/second_order/quadratic.py: SEEN": "when a valley leads down up to rounding",
    "methods/quasi_newton/curved_pairs.py: TRIALS": "steps that are tried together",
    "problems/personal/methods/dada.py: HEAD": "how a message begins",
    "problems/personal/methods/dada.py: VIEWS": "which random numbers are drawn",
    "problems/shared/methods/deviations.py: FEW": "when LAPACK is called",
    "problems/shared/methods/deviations.py: SMALL": "how much is in memory twice",
    "methods/published/diffusion.py: DERIVATIVES": "which compiled derivative is which",
    "methods/largest.py: HIGHEST": "what secure sums can hold",
    "methods/largest.py: LOWEST": "what secure sums can hold",
    "methods/largest.py: STEPS": "how finely they are rounded",
    "methods/primal_dual/dual_block.py: MOST_STEPS": "far more than it takes",
    "methods/primal_dual/dual_block.py: ROUNDING": "how numbers round",
    "methods/published/mixing_filter.py: ROUNDING": "how numbers round",
    "problems/shared/methods/shared.py: STEPS": "steps that are tried together",
    "methods/auto/costs.py: MEMORY": "how fast memory is",
    "problems/survival/methods.py: ROUNDS": "when to say that there is no maximum",
    "methods/second_order/barriers/barrier.py: LONGEST": "how long steps are at most",
    "methods/columns/blocks.py: KEY_BYTES": "how keys look",
    "methods/columns/blocks.py: NONCE": "how messages are encrypted",
    "methods/columns/column_costs.py: DENSE": "what auto assumes",
    "methods/columns/column_costs.py: EQUATIONS": "what auto assumes",
    "methods/columns/column_costs.py: PAIRS": "what auto assumes",
    "methods/columns/column_costs.py: SMALL": "what auto assumes",
    "methods/columns/column_costs.py: ALONE_ROUNDS": "what auto assumes",
    "methods/columns/column_costs.py: FEW": "what auto assumes",
    "methods/columns/column_costs.py: PROOFS": "what auto assumes",
    "methods/columns/column_costs.py: SUMS": "what auto assumes",
    "methods/columns/column_costs.py: SUMS_L1": "what auto assumes",
    "methods/columns/column_costs.py: ROUNDS": "what auto assumes",
    "methods/columns/column_costs.py: TREE_ROUNDS": "what auto assumes",
    "methods/columns/envelope.py: EXACT": "when a search is exact",
    "methods/columns/envelope.py: TRIALS": "when to give up",
    "methods/columns/envelope.py: FARTHEST": "when a search has no end",
    "methods/second_order/inside.py: FAR": "when to give up",
    "methods/second_order/inside.py: ROUNDING": "how numbers round",
    "methods/second_order/inside.py: STEPS": "when to give up",
    "methods/second_order/interior_point.py: EXPECTED_ROUNDS": "what auto assumes",
    "methods/second_order/interior_point.py: EXPECTED_SUMS": "what auto assumes",
    "methods/second_order/interior_point.py: (OUTSIDE, APPROACHING, ON_PATH)": "where a state is",
    "methods/second_order/interior_point.py: EMPTY": "nothing",
    "methods/second_order/interior_point.py: STEPS": "steps that are tried together",
    "methods/second_order/interior_point.py: WIDEST": "how long a message may be",
    "methods/quasi_newton/rounds.py: NOTHING": "nothing",
    "methods/quasi_newton/lbfgs.py: ROUNDING": "how numbers round",
    "methods/quasi_newton/lbfgs.py: SCORE": "what auto assumes",
    "methods/quasi_newton/lbfgs_rows.py: EXPECTED_ROUNDS": "what auto assumes",
    "methods/quasi_newton/lbfgs_rows.py: EXPECTED_SHARED": "what auto assumes",
    "methods/quasi_newton/metrics.py: (SWEEPS, EXACT)": "when a block is solved",
    "methods/quasi_newton/metrics.py: FLOOR": "how numbers round",
    "stats/moments.py: BLOCK": "how much is in memory at a time",
    "stats/moments.py: FEW": "when BLAS is called",
    "stats/moments.py: FEW_OF_THIN": "when BLAS is called",
    "stats/moments.py: LEAST_SINGLE": "how numbers round",
    "stats/moments.py: NOISE": "how numbers round",
    "methods/second_order/linear.py: EXPECTED_ACTIVE": "what auto assumes",
    "methods/second_order/linear.py: EXPECTED_SHARE_ACTIVE": "what auto assumes",
    "methods/second_order/linear.py: EXPECTED_LASSO_PASSES": "what auto assumes",
    "methods/second_order/linear.py: EXPECTED_LASSO_ROUNDS": "what auto assumes",
    "methods/second_order/linear.py: EXPECTED_PASSES": "what auto assumes",
    "methods/second_order/linear.py: EXPECTED_SINGLE": "what auto assumes",
    "methods/second_order/linear.py: EXPECTED_ROUNDS": "what auto assumes",
    "methods/second_order/linear.py: EXPECTED_SPARSE_ROUNDS": "what auto assumes",
    "methods/second_order/linear.py: FULL": "how long a message may be",
    "problems/multiclass/methods.py: FULL": "how long a message may be",
    "methods/second_order/oracle.py: NOTHING": "nothing",
    "methods/second_order/oracle.py: WHOLE": "a whole step",
    "methods/line_search.py: LONGEST_SEARCH": "when a step is too short to matter",
    "methods/line_search.py: HOPELESS": "when numbers overflow",
    "methods/line_search.py: SHORTER": "steps that are tried together",
    "methods/second_order/quadratic.py: ATTEMPTS": "when to give up",
    "methods/second_order/quadratic.py: GRADIENT_STEPS": "when to give up",
    "methods/second_order/quadratic.py: FIRM": "how numbers round",
    "methods/second_order/quadratic.py: ROUNDING": "how numbers round",
    "methods/quasi_newton/searched_rows.py: TRIALS": "steps that are tried together",
    "problems/low_rank/methods/inner_steps.py: ROUNDING": "how numbers round",
    "problems/low_rank/methods/small_ball.py: CLOSE": "when a small problem is solved",
    "problems/low_rank/methods/small_ball.py: FLAT": "how numbers round",
    "problems/low_rank/methods/small_ball.py: POWER": "how exactly a step length is known",
    "problems/low_rank/methods/subspace.py: NEGLIGIBLE": "how numbers round",
    "problems/shared/methods/deviations.py: NEGLIGIBLE": "how numbers round",
    "problems/shared/methods/shared.py: TINY": "a divisor for no rows",
    "methods/second_order/semismooth.py: EXPECTED_PASSES": "what auto assumes",
    "methods/second_order/semismooth.py: EXPECTED_ROUNDS": "what auto assumes",
    "methods/second_order/semismooth.py: EXPECTED_SHARE": "what auto assumes",
    "methods/second_order/semismooth.py: EXPECTED_SUMS": "what auto assumes",
    "methods/second_order/semismooth.py: STEP_SIZES": "steps that are tried together",
    "methods/second_order/semismooth.py: TALL": "what auto assumes",
    "methods/second_order/working_set.py: SINGLE_PRECISION": "how numbers round",
}
"""Numbers at module level that steer nothing, and what they are."""


def constants(path):
    """Names at module level with a number in what they are set to."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            numbers = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
            if any(type(number) in (int, float) for number in numbers):
                yield ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def test_every_number_that_steers_is_in_a_tuning():
    root = Path(co.__file__).parent
    patterns = (
        "methods/**/*.py",
        "numerics/acceleration/*.py",
        "problems/*/methods.py",
        "problems/*/methods/*.py",
    )
    files = [path for pattern in patterns for path in root.glob(pattern)]
    files += [root / "stats/moments.py", root / "run/rounds.py", root / "run/stopping.py"]
    found = {f"{path.relative_to(root)}: {name}" for path in files for name in constants(path)}
    assert found == set(PLAIN)
