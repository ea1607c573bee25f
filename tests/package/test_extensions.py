"""What is registered is known as what Coterie has: in Python, in saved files and in the shell; what
is not, is named.

The package in `tests/extension_package` is installed into a folder of its own: its module, and what
an installer would write of its `pyproject.toml`. Only subprocesses have that folder on their path.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import coterie as co
from coterie import catalogue
from coterie.catalogue import EXTENSIONS, GROUP, unregister
from coterie.errors import CorruptFile, InvalidInput, InvalidProblem, NotRegistered, UnknownName
from coterie.numerics.losses.hinge import Hinge
from coterie.numerics.losses.logistic import Logistic
from coterie.numerics.losses.squared import Squared
from coterie.numerics.penalties.l2 import L2

PACKAGE = Path(__file__).parents[1] / "extension_package"
RNG = np.random.default_rng(0)
N, D, SCALE, STRENGTH = 60, 4, 2.0, 0.05
X = RNG.standard_normal((N, D))
Y = X @ RNG.standard_normal(D) + 0.1 * RNG.standard_normal(N)
OPTIMUM = np.linalg.solve(SCALE * X.T @ X / N + 2 * STRENGTH * np.eye(D), SCALE * X.T @ Y / N)
FIT = (
    "fit rows.csv --target y --loss scaled_squared --penalty square --method plain-gradient "
    "--engine announced "
    f"--network wheel --no-intercept --strength {STRENGTH} --option scale={SCALE} --option "
    "shorter=1.5"
).split()
CHECK = ["verify", "answer/certificate.json", "answer/model.npz", "rows.csv", "--target", "y"]


# -- an installed package, without an installer ----------------------------------------------------


def install(folder: Path, module: Path, name: str, version: str, points: dict[str, str]) -> None:
    """What an installer does with a package of one module."""
    shutil.copy(module, folder)
    statistics = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    statistics.mkdir()
    (statistics / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    )
    lines = [f"[{GROUP}]", *(f"{point} = {value}" for point, value in points.items())]
    (statistics / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder that has the example package."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    folder = tmp_path_factory.mktemp("site")
    points = project["entry-points"][GROUP]
    install(folder, PACKAGE / "coterie_example.py", project["name"], project["version"], points)
    return folder


def python(
    *arguments: object, site: Path | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it with these packages, and without."""
    path = [str(Path(co.__file__).parents[1]), *([] if site is None else [str(site)])]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=surroundings,
    )


@pytest.fixture(scope="module")
def answered(site, tmp_path_factory) -> Path:
    """A folder in which the command line has fitted everything of the example package."""
    folder = tmp_path_factory.mktemp("work")
    pd.DataFrame({**{f"x{i}": X[:, i] for i in range(D)}, "y": Y}).to_csv(
        folder / "rows.csv", index=False
    )
    fitted = python("-m", "coterie", *FIT, "--agents", 5, "-o", "answer", site=site, cwd=folder)
    assert fitted.returncode == 0, fitted.stderr
    assert "announced: the run begins" in fitted.stderr
    return folder


@pytest.fixture
def example():
    """The module of the example package, with everything in it registered; afterwards nothing
    is.
    """
    spec = importlib.util.spec_from_file_location("coterie_example", PACKAGE / "coterie_example.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["coterie_example"] = module  # where dataclasses look for annotations
    spec.loader.exec_module(module)
    module.register()
    yield module
    for entry in module.ALL:
        unregister(entry)
    del sys.modules["coterie_example"]


# -- in Python -------------------------------------------------------------------------------------


def solved() -> co.Result:
    problem = co.Problem("scaled_squared", "square", STRENGTH, scale=SCALE, intercept=False)
    how = {"method": "plain-gradient", "engine": "announced", "network": "wheel", "shorter": 1.5}
    return co.solve(problem, (X, Y), agents=5, tol=1e-10, **how)


def test_registered_things_are_fitted_saved_loaded_and_verified(example, tmp_path, capsys):
    result = solved()
    assert result.status == "optimal"
    assert "announced: the run begins" in capsys.readouterr().err
    assert result.network.name == "wheel"
    np.testing.assert_allclose(result.model.coef_, OPTIMUM, atol=1e-4)
    loaded = co.Result.load(result.save(tmp_path / "answer"))
    assert loaded.model.problem == result.model.problem
    assert type(loaded.model.problem.loss) is example.ScaledSquared
    assert co.verify(loaded.certificate, loaded.model, (X, Y)).holds
    # A registered loss is one for every method that takes its abilities, and is weighed by "auto".
    again = co.solve(loaded.model.problem, (X, Y), agents=3, tol=1e-8)
    np.testing.assert_allclose(again.model.coef_, OPTIMUM, atol=1e-3)


def test_a_run_of_registered_things_resumes_from_its_checkpoint(example, tmp_path):
    problem = co.Problem("scaled_squared", "square", STRENGTH, scale=SCALE, intercept=False)
    how = {"agents": 3, "method": "plain-gradient", "tol": 1e-15}
    whole = co.solve(problem, (X, Y), max_rounds=12, **how)
    co.solve(problem, (X, Y), max_rounds=5, checkpoint=tmp_path, **how)
    resumed = co.solve(problem, (X, Y), max_rounds=12, checkpoint=tmp_path, **how)
    assert (resumed.model.coef_ == whole.model.coef_).all()


def test_estimators_and_listings_know_what_is_registered(example):
    assert {"scaled_squared"} < set(co.losses.LOSSES)
    assert {"plain-gradient"} < set(co.methods.METHODS)
    assert list(co.networks.TOPOLOGIES) == sorted(co.networks.TOPOLOGIES)
    for loss in ("scaled_squared", example.ScaledSquared()):
        fitted = co.LinearRegressor(
            loss=loss, penalty="square", alpha=STRENGTH, fit_intercept=False
        ).fit(X, Y)
        best = np.linalg.solve(X.T @ X / N + 2 * STRENGTH * np.eye(D), X.T @ Y / N)
        np.testing.assert_allclose(fitted.coef_, best, atol=1e-2)


def test_an_object_needs_no_registration_until_it_is_loaded(example, tmp_path):
    unregister(example.ScaledSquared)
    result = co.solve(
        co.Problem(example.ScaledSquared(SCALE), example.Square(STRENGTH), intercept=False),
        (X, Y),
        agents=2,
        tol=1e-10,
    )
    np.testing.assert_allclose(result.model.coef_, OPTIMUM, atol=1e-4)
    fitted = co.LinearRegressor(loss=example.ScaledSquared(), penalty="l2").fit(X, Y + 50)
    assert fitted.coef_.shape == (D,)
    with pytest.raises(NotRegistered, match="loss 'scaled_squared'"):
        co.Result.load(result.save(tmp_path))


@dataclass(frozen=True)
class OwnHinge(Hinge):
    """The hinge, which does not say what constant is best."""

    name: ClassVar[str] = "own_hinge"

    def constant(self, mean: float) -> None:
        return None


@dataclass(frozen=True)
class OwnLogistic(Logistic):
    """Logistic regression under another name: it has the same abilities."""

    name: ClassVar[str] = "own_logistic"


def test_a_loss_needs_no_formula_for_its_best_constant():
    y = np.where(Y > 1, 1.0, -1.0)
    result = co.solve(co.Problem(OwnHinge(), "l2", 0.1, intercept=True), (X, y), agents=3)
    known = co.solve(co.Problem("hinge", "l2", 0.1, intercept=True), (X, y), agents=3)
    assert result.status == "optimal"
    assert result.certificate.unit == pytest.approx(known.certificate.unit, rel=0.1)


def test_methods_ask_for_abilities_not_for_names(example):
    problem = co.Problem(OwnLogistic(), example.Square(STRENGTH), intercept=False)
    y = np.where(Y > 0, 1.0, -1.0)
    best = co.solve(
        co.Problem("logistic", "l2", 2 * STRENGTH, intercept=False), (X, y), agents=3, tol=1e-9
    )
    for method in ("relay", "newton", "proximal-1"):
        result = co.solve(problem, (X, y), agents=3, method=method, tol=1e-9)
        np.testing.assert_allclose(result.model.coef_, best.model.coef_, atol=1e-3)
    np.testing.assert_array_equal(
        result.model.predict_proba(X).argmax(axis=1), result.model.predict(X) > 0
    )
    fitted = co.LinearClassifier(loss=OwnLogistic(), penalty="square", alpha=STRENGTH).fit(X, y)
    np.testing.assert_allclose(fitted.predict_proba(X).sum(axis=1), 1.0)
    by_columns = co.solve(
        co.Problem("squared", "square", STRENGTH, intercept=False),
        (X, Y),
        agents=2,
        split="features",
        method="pvrd2",
    )
    ridge = np.linalg.solve(X.T @ X / N + 2 * STRENGTH * np.eye(D), X.T @ Y / N)
    np.testing.assert_allclose(by_columns.model.coef_, ridge, atol=1e-2)


@pytest.mark.parametrize(
    ("problem", "method", "words"),
    [
        (
            co.Problem("huber", "l2", 0.1, intercept=False),
            "gram",
            r"squared loss \(quadratic\); 'huber'",
        ),
        (
            co.Problem("hinge", "l1", 0.1, intercept=False),
            "relay",
            r"l2 penalty \(quadratic, one strength for all columns\).*'l1'",
        ),
        (
            co.Problem("squared", "l1", 0.1, intercept=False),
            "diffusion",
            r"l2 penalty \(quadratic, one strength for all columns\).*'l1'",
        ),
        (
            co.Problem("absolute", "l2", 0.1, intercept=False),
            "diffusion",
            r"derivative is compiled.*'absolute'",
        ),
    ],
)
def test_an_error_names_the_ability_that_is_missing(problem, method, words):
    with pytest.raises(InvalidProblem, match=words):
        co.solve(
            problem,
            (X, np.sign(Y)),
            agents=2,
            method=method,
            split=co.methods.METHODS[method].split,
        )


def test_a_loss_without_an_ability_says_so():
    with pytest.raises(InvalidProblem, match=r"hinge loss has no second derivative \(curvature\)"):
        Hinge().curvature(X[:, 0], Y)
    with pytest.raises(InvalidProblem, match=r"hinge loss has no probabilities \(probability\)"):
        Hinge().probability(X[:, 0], 1.0)


def test_without_the_registration_saved_files_say_what_is_missing(example, tmp_path):
    result = solved()
    result.save(tmp_path)
    for entry in (example.ScaledSquared, example.Square):
        unregister(entry)
        with pytest.raises(NotRegistered, match=rf"'{entry.name}' is unknown.*register it"):
            co.Result.load(tmp_path)
        co.register(entry)
    unregister(example.PlainGradient)
    loaded = co.Result.load(tmp_path)
    with pytest.raises(NotRegistered, match=r"method 'plain-gradient' is unknown.*register it"):
        co.verify(loaded.certificate, loaded.model, (X, Y))
    with pytest.raises(
        UnknownName, match=r"no method called 'plain-gradient'\. Known: .*register it"
    ):
        solved()


def test_nothing_leaks(tmp_path):
    assert "scaled_squared" not in co.losses.LOSSES
    assert "plain-gradient" not in co.methods.METHODS
    assert "announced" not in co.engines.ENGINES
    assert "square" not in co.penalties.PENALTIES
    assert "wheel" not in co.networks.TOPOLOGIES


def test_a_name_that_is_none_is_a_corrupt_file(tmp_path):
    result = co.solve(co.Problem("squared", "l2", 0.1, intercept=False), (X, Y), agents=2)
    header = {**result.model.problem.settings(), "loss": {"name": 5}}
    with pytest.raises(UnknownName):
        co.Problem.from_settings(header)
    path = result.model.save(tmp_path / "model.npz")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorruptFile):
        co.models.load_model(path)


# -- what is refused -------------------------------------------------------------------------------


def test_the_same_class_twice_is_fine_and_another_of_the_same_name_is_not(example):
    assert co.register(example.ScaledSquared) is example.ScaledSquared
    newer = type(
        "ScaledSquared",
        (example.ScaledSquared,),
        {"name": "scaled_squared", "__module__": "coterie_example"},
    )
    newer = dataclass(frozen=True)(newer)
    co.register(newer)  # as a notebook's cell that is run again
    assert co.losses.LOSSES["scaled_squared"] is newer
    unregister(newer)
    co.register(example.ScaledSquared)
    other = dataclass(frozen=True)(
        type("Other", (example.ScaledSquared,), {"name": "scaled_squared"})
    )
    with pytest.raises(
        InvalidInput, match=r"loss called 'scaled_squared' already, coterie_example\.ScaledSquared"
    ):
        co.register(other)
    taken = dataclass(frozen=True)(
        type("Squared", (Squared,), {"name": "squared", "__module__": Squared.__module__})
    )
    with pytest.raises(InvalidInput, match="loss called 'squared' already"):
        co.register(taken)


@pytest.mark.parametrize(
    "name", ["Mine", "my loss", "", "1st", "-mine", "mine-", "my--loss", "auto", 3, "über"]
)
def test_names_that_no_shell_or_file_would_like(name):
    named = dataclass(frozen=True)(type("Mine", (Squared,), {"name": name}))
    with pytest.raises(InvalidInput, match="cannot be the name of a loss"):
        co.register(named)


@dataclass(frozen=True)
class Nameless(Squared):
    """It inherits a name, which is not its own."""


@dataclass(frozen=True)
class Half(co.Loss):
    """It states and defines too little."""

    name: ClassVar[str] = "half"
    kind: ClassVar[str] = "ranking"

    def each(self, u, y):
        return u


class Bare(L2):
    """No dataclass of its own."""

    name: ClassVar[str] = "bare"


@dataclass(frozen=True)
class Silent(co.Method):
    """A method that does not say what it is for."""

    name: ClassVar[str] = "silent"

    state = start = round = point = None


def lonely(count: int) -> co.Network:
    """It calls its agents something else."""


def nothing(agents: int):
    """It does not say what it returns."""


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (Nameless, ["state its name (name: ClassVar[str] = ...)"]),
        (
            Half,
            [
                "conjugate_each, domain, dual_prox, gradient, lipschitz, smoothness",
                "'classification', 'regression'",
            ],
        ),
        (Bare, ["@dataclass(frozen=True)"]),
        (
            Silent,
            [
                "state its split",
                "'features', 'samples', 'users'",
                "state its summary",
                "its disclosure",
                "its discloses_labels",
            ],
        ),
        (lonely, ["call its first parameter agents"]),
        (nothing, ["-> co.Network"]),
        (Squared(), ["register the class itself", "Loss, Penalty, Method, Engine, Task or Kind"]),
        (int, ["'int'", "Loss, Penalty, Method, Engine, Task or Kind"]),
        ("hinge", ["register the class itself"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_incomplete_is_refused_with_what_is_missing(entry, words):
    with pytest.raises(InvalidInput) as refused:
        co.register(entry)
    for word in words:
        assert word in str(refused.value)


# -- in the shell ----------------------------------------------------------------------------------


def test_the_shell_knows_an_installed_package(site, answered):
    with np.load(answered / "answer" / "model.npz") as model:
        np.testing.assert_allclose(model["coef"], OPTIMUM, atol=1e-2)
    checked = python("-m", "coterie", *CHECK, site=site, cwd=answered)
    assert checked.returncode == 0, checked.stderr
    assert "scaled_squared (scale 2.0) loss, square (strength 0.05) penalty" in " ".join(
        checked.stdout.split()
    )
    said = python(
        "-m",
        "coterie",
        "predict",
        "answer/model.npz",
        "rows.csv",
        "--json",
        site=site,
        cwd=answered,
    )
    assert said.returncode == 0, said.stderr
    np.testing.assert_allclose(json.loads(said.stdout)["predictions"], X @ OPTIMUM, atol=1e-2)


def test_python_knows_an_installed_package_once_it_is_needed(site, answered):
    code = """
import sys, coterie as co
co.Problem("squared", "l2", 0.1)
assert "coterie_example" not in sys.modules
result = co.Result.load("answer")
assert "coterie_example" in sys.modules
print(result.model.problem.loss, result.status)
"""
    told = python("-W", "error", "-c", code, site=site, cwd=answered)
    assert told.stdout == "ScaledSquared(scale=2.0) optimal\n", told.stderr


def test_without_the_package_the_shell_asks_for_it(answered, shell, monkeypatch):
    monkeypatch.chdir(answered)
    for command in (CHECK, ["predict", "answer/model.npz", "rows.csv"]):
        code, _, said = shell(*command)
        told = " ".join(said.split())
        assert code == 3, told
        assert "the penalty 'square' is unknown" in told
        assert "register it" in told
        assert "readable" not in told
    code, _, said = shell(*FIT, "-o", "other")
    assert (code, "register it" in " ".join(said.split())) == (3, True)


# -- entry points ----------------------------------------------------------------------------------

BROKEN = "import package_that_is_not_there\n"
CLASS = """
from dataclasses import dataclass
from typing import ClassVar
from coterie.numerics.losses.squared import Squared

@dataclass(frozen=True)
class Other(Squared):
    name: ClassVar[str] = "{name}"
"""


@pytest.fixture
def places(tmp_path):
    """A function that installs a module with that text under a name."""

    def write(name: str, text: str, points: dict[str, str]) -> Path:
        (tmp_path / "sources").mkdir(exist_ok=True)
        (tmp_path / "site").mkdir(exist_ok=True)
        module = tmp_path / "sources" / f"{name}.py"
        module.write_text(text)
        install(tmp_path / "site", module, f"coterie-{name}", "2.5", points)
        return tmp_path / "site"

    return write


def test_an_entry_point_is_a_module_a_function_or_a_class(places):
    places(
        "whole",
        CLASS.format(name="of_module") + "import coterie as co\nco.register(Other)\n",
        {"a": "whole"},
    )
    places(
        "called",
        CLASS.format(name="of_function") + "import coterie as co\ndef go(): co.register(Other)\n",
        {"b": "called:go"},
    )
    site = places("direct", CLASS.format(name="of_class"), {"c": "direct:Other"})
    told = python("-W", "error", "-c", "import coterie as co; print(*co.losses.LOSSES)", site=site)
    assert {"of_module", "of_function", "of_class"} < set(told.stdout.split()), told.stderr


def test_one_that_fails_is_named_and_breaks_nothing_else(places):
    places("broken", BROKEN, {"oops": "broken"})
    site = places("direct", CLASS.format(name="of_class"), {"fine": "direct:Other"})
    code = """
import coterie as co
print(*co.losses.LOSSES)
try:
    co.losses.LOSSES["nowhere"]
except co.errors.UnknownName as error:
    print(error)
"""
    told = python("-c", code, site=site)
    listed, refused = told.stdout.splitlines()
    assert {"squared", "of_class"} < set(listed.split())
    for text in (told.stderr, refused):
        assert (
            "The extension 'oops' (broken) of coterie-broken 2.5 could not be loaded "
            "(ModuleNotFoundError"
        ) in text
    assert told.stderr.count("could not be loaded") == 1
    fitted = python(
        "-W", "error", "-c", "import coterie as co; co.losses.LOSSES['squared']", site=site
    )
    assert (fitted.returncode, fitted.stderr) == (0, "")


def test_the_doctor_names_one_that_fails(monkeypatch):
    monkeypatch.setattr(EXTENSIONS, "failures", ("The extension 'oops' could not be loaded.",))
    (found,) = [
        finding for finding in co.doctor.diagnose(quick=True) if finding.what == "extension"
    ]
    assert (found.works, found.needed, "oops" in found.detail) == (False, False, True)


def test_two_packages_that_claim_one_name(places):
    places("first", CLASS.format(name="mine"), {"mine": "first:Other"})
    site = places("second", CLASS.format(name="mine"), {"mine": "second:Other"})
    told = python("-c", "import coterie as co; print(co.losses.LOSSES['mine']())", site=site)
    assert told.stdout == "Other()\n"
    assert told.stderr.count("there is a loss called 'mine' already") == 1


def test_an_extension_may_list_a_catalogue_while_it_is_loaded(places):
    text = (
        CLASS.format(name="mine")
        + "import coterie as co\nassert len(co.losses.LOSSES) > 3\nco.register(Other)\n"
    )
    site = places("curious", text, {"mine": "curious"})
    told = python(
        "-W", "error", "-c", "import coterie as co; print('mine' in co.losses.LOSSES)", site=site
    )
    assert told.stdout == "True\n", told.stderr


def test_extensions_are_looked_for_once_and_not_before_they_are_needed(monkeypatch):
    asked = []
    monkeypatch.setattr(catalogue, "entry_points", lambda **about: asked.append(about) or [])
    monkeypatch.setattr(EXTENSIONS, "_begun", False)
    assert co.losses.LOSSES["squared"]
    assert "logistic" in co.losses.LOSSES
    co.Problem("hinge", "l1", 0.1, intercept=False)
    assert asked == []
    list(co.losses.LOSSES), len(co.methods.METHODS), "nothing" in co.penalties.PENALTIES
    assert asked == [{"group": GROUP}]


@pytest.mark.slow
@pytest.mark.parametrize(
    "laws", ["test_losses.py -k scaled_squared", "test_penalties.py -k square"]
)
def test_the_laws_hold_for_an_extension(site, laws):
    file, *which = laws.split()
    path = PACKAGE.parent / "numerics" / file
    held = python(
        "-m",
        "pytest",
        path,
        *which,
        "-q",
        "-p",
        "no:cacheprovider",
        site=site,
        cwd=PACKAGE.parents[1],
    )
    assert held.returncode == 0, held.stdout[-3000:]
    assert int(held.stdout.splitlines()[-1].split(" passed")[0].split()[-1]) > 5
