"""Every operation for every kind of problem, at every place: what it gives, and what it costs.

    ask(operation, kind, On("local"))      one process; any engine in place of "local"
    ask(operation, kind, Among(folder))    three organisations, a thread each, with real TLS between
                                           them

An answer has names and plain numbers. A combination that is not supported has one entry, "refused",
with the message.
MPI runs this file as a script, for the cells with these numbers:

    mpiexec -n 3 python -m tests.harness.operations ANSWERS 0 5
"""

from __future__ import annotations

import io
import itertools
import json
import pickle
import re
import sys
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

import coterie as co
from coterie.api.describe import RAW
from coterie.errors import CoterieError
from coterie.numerics.threads import one_blas_thread
from coterie.study.crosstab import crosstab_together
from coterie.study.description import describe_together
from coterie.study.proof import verify_together
from coterie.study.scores import evaluate_together, predict_together
from coterie.study.study import load_study
from tests.harness.parties import ANYTHING, together, without_digests, write_study
from tests.harness.worker_cases import Case, same

NAMES = ("ann", "bob", "cleo")
KINDS = {
    "linear": Case("linear", "logistic"),
    "columns": Case("linear", "squared", "features"),
    "multiclass": Case("multiclass", "multinomial", noisy=True),
    "survival": Case("survival", "cox", intercept=False),
    "low-rank": Case("low-rank", "multinomial"),
    "shared": Case("shared", "logistic", "users"),
    "personal": Case("personal", "stumps", "users", intercept=False),
    "linear, prepared": Case("linear", "squared", prepare=True),
    "multiclass, prepared": Case("multiclass", "multinomial", prepare=True),
}
"""One fit of every kind, and of raw columns."""
PATH = {"count": 2, "cv": 2}
PATH_OF_COLUMNS = {"strengths": [0.1, 0.01], "cv": 2}
UNPENALISED = ("linear", "columns", "multiclass", "survival")
"""Kinds whose standard errors are asked of a fit without a penalty."""


@dataclass(frozen=True)
class On:
    """One process that asks, and the engine that has the tables; the driver has none but on
    "local".
    """

    engine: object

    def fitted(self, kind, **changes):
        case = KINDS[kind]
        problem = changes.pop("problem", case.problem)
        return co.solve(problem, self.data(kind), engine=self.engine, **settings(kind), **changes)

    def data(self, kind):
        tables = tables_of(kind)
        here = getattr(self.engine, "name", self.engine) == "local"
        return tables if here else [partial(same, table) for table in tables]

    def fit(self, kind):
        result = self.fitted(kind)
        return of_result(result) | {
            "scores": scores(kind, [result.model] * 3),
            "bill": bill_of(result.bill),
        }

    def verify(self, kind):
        result = self.fitted(kind)
        found = co.verify(result.certificate, result.model, self.data(kind), same_order=True)
        return of_verification(found)

    def evaluate(self, kind):
        case = KINDS[kind]
        asked = {"split": case.split, "engine": self.engine, "secure_sums": case.split == "samples"}
        found = co.evaluate(self.fitted(kind).model, self.data(kind), same_order=True, **asked)
        return {"scores": found.scores, "bill": bill_of(found.bill)}

    def path(self, kind):
        how = {name: value for name, value in settings(kind).items() if name != "progress"}
        how |= path_of(kind)
        found = co.path(
            KINDS[kind].problem, self.data(kind), engine=self.engine, progress=False, **how
        )
        return of_path(kind, [found] * 3)

    def inference(self, kind, errors="robust"):
        clusters = None
        if errors == "clustered":
            clusters = [wards_of(table) for table in tables_of(kind)]
        found = self.fitted(kind, **unpenalised(kind)).inference(errors, clusters)
        return {"table": str(found), "covariance": found.covariance, "bill": vars(found.bill.total)}

    def predict(self, kind):
        return {"scores": scores(kind, [self.fitted(kind).model] * 3)}

    def choose(self, kind):
        fixed = {"method", "split"}
        how = {name: value for name, value in settings(kind).items() if name not in fixed}
        found = co.choose(self.data(kind), loss=KINDS[kind].loss, engine=self.engine, **how)
        return of_choice(found.choice, found.trials, vars(found.cost)) | {
            "scores": scores(kind, [found.result.model] * 3)
        }

    def describe(self, kind):
        found = co.describe(self.raw(kind), engine=self.engine, secure_sums=True)
        return {"text": str(found), "bill": bill_of(found.bill)}

    def crosstab(self, kind):
        found = co.crosstab(self.raw(kind), "ward", "grade", engine=self.engine, secure_sums=True)
        return {"text": str(found), "bill": bill_of(found.bill)}

    def raw(self, kind):
        tables = [replace(raw_table(place), name=name) for place, name in enumerate(NAMES)]
        return tables if self.engine == "local" else [partial(same, table) for table in tables]


class Among:
    """Three organisations with a study, a thread each."""

    def __init__(self, folder, consent=True, policy=f"{ANYTHING}\npolicy.minimum-count = 1"):
        """With an answer to every page."""
        self.folder, self.consent, self.policy = folder, consent, policy
        self.numbers = itertools.count()

    def study(self, kind, problem=None, **more):
        """The folder of a study of that kind, with a file for each party."""
        case = KINDS[kind]
        how = {
            name: value
            for name, value in settings(kind).items()
            if value is not None and name != "progress"
        }
        how = {name.replace("_", "-"): value for name, value in how.items() if name != "same_order"}
        folder = self.folder / f"study {next(self.numbers)}"
        write_study(
            folder,
            NAMES,
            problem or written(kind),
            policy=self.policy,
            deadline=120.0,
            **how,
            **more,
        )
        load_study(folder / "study.toml")
        for place, name in enumerate(NAMES):
            file = folder / name / "party.toml"
            text = file.read_text()
            if case.split == "users":
                text = f'target = "y"\n{text.replace(TARGET, "")}'
            if kind == "survival":
                text = text.replace(TARGET, SURVIVAL)
            file.write_text(f'test = "data.csv"\n{text}')
            write_file(folder / name / "data.csv", kind, place)
        return folder

    def run(self, folder, work=None):
        """What each party comes to; an error that all have is raised."""
        how = {} if work is None else {"work": work}
        found = together(folder, names=NAMES, consent=self.consent, **how)
        errors = [one for one in found if isinstance(one, CoterieError)]
        if errors:
            assert len({str(one) for one in errors}) == 1, errors
            assert len(errors) == 3, errors
            raise errors[0]
        return found

    def fit(self, kind):
        results = self.run(self.study(kind))
        assert len({str(vars(result.bill.total)) for result in results}) == 1
        models = [result.model for result in results]
        return of_result(results[0]) | {
            "scores": scores(kind, models),
            "bill": bill_of(without_digests(results[0].bill)),
        }

    def verify(self, kind):
        folder = self.study(kind)
        self.run(folder)
        return of_verification(self.run(folder, verify_together)[0])

    def evaluate(self, kind):
        folder = self.study(kind)
        self.run(folder)
        found = next(one for one in self.run(folder, evaluate_together) if one is not None)
        return {"scores": found.scores, "bill": bill_of(found.bill)}

    def path(self, kind):
        problem = {
            name: value
            for name, value in written(kind).items()
            if name not in ("strength", "radius")
        }
        folder = self.study(
            kind, problem, **{f"path.{name}": value for name, value in path_of(kind).items()}
        )
        self.run(folder)
        paths = [co.Path.load(folder / name / "result" / "path") for name in NAMES]
        return of_path(kind, [without_digests_of_all(path) for path in paths])

    def inference(self, kind, errors="robust"):
        problem = written(kind)
        if kind in UNPENALISED:
            problem = {**problem, "penalty": "none"}
            del problem["strength"]
        folder = self.study(kind, problem, inference=errors)
        if errors == "clustered":
            add_wards(folder, kind)
        self.run(folder)
        found = co.Inference.load(folder / NAMES[0] / "result" / "inference.json")
        billed = json.loads((folder / NAMES[0] / "result" / "bill.json").read_text())["inference"][
            "total"
        ]
        return {"table": str(found), "covariance": found.covariance, "bill": billed}

    def predict(self, kind):
        def work(own, study, consent):
            return predict_together(own, study, own.data, consent=consent).scores

        folder = self.study(kind)
        self.run(folder)
        return {"scores": next(one for one in self.run(folder, work) if one is not None)}

    def choose(self, kind):
        folder = self.study(kind, {"loss": KINDS[kind].loss})
        models = [result.model for result in self.run(folder)]
        own = folder / NAMES[0] / "result"
        told = json.loads((own / "choice.json").read_text())
        billed = json.loads((own / "bill.json").read_text())["choice"]
        return of_choice(told["choice"], told["trials"], billed) | {"scores": scores(kind, models)}

    def describe(self, kind):
        found = self.run(self.raw_study(), describe_together)[0]
        return {"text": str(found), "bill": bill_of(found.bill)}

    def crosstab(self, kind):
        work = partial(crosstab_together, rows="ward", columns="grade")
        found = self.run(self.raw_study(), work)[0]
        return {"text": str(found), "bill": bill_of(found.bill)}

    def raw_study(self):
        """A study of rows with text and missing values, for operations that come before a fit."""
        folder = self.folder / f"study {next(self.numbers)}"
        write_study(
            folder, NAMES, written("linear"), policy=self.policy, deadline=120.0, split="samples"
        )
        for place, name in enumerate(NAMES):
            file = folder / name / "party.toml"
            file.write_text(file.read_text().replace(TARGET, ""))
            (folder / name / "data.csv").write_text(raw_text(place))
        return folder


def without_digests_of_all(path):
    """The path, with bills that leave out the digests that organisations compare."""
    results = [replace(one, bill=without_digests(one.bill)) for one in path.results]
    return replace(path, results=tuple(results))


TARGET = 'target = "y"\n'
SURVIVAL = 'time = "time"\nevent = "event"\nstrata = "strata"\n'


def ask(operation, kind, place):
    """The answer of that operation for that kind, or the message with which it is refused."""
    with warnings.catch_warnings(), one_blas_thread():
        warnings.simplefilter("ignore", UserWarning)
        try:
            name, _, more = operation.partition(" by ")
            return getattr(place, name)(kind, *filter(None, [more]))
        except CoterieError as error:
            # A study names its file first.
            return {"refused": re.sub(r"^\S.*study\.toml: ", "", str(error))}


ERRORS = ("linear", "columns", "multiclass", "survival", "shared")
"""Kinds of problems that are asked for model-based and clustered standard errors."""
OPERATIONS = ("fit", "verify", "evaluate", "path", "inference")
CELLS = [
    *((operation, kind) for operation in OPERATIONS for kind in KINDS),
    *((f"inference by {errors}", kind) for errors in ("model", "clustered") for kind in ERRORS),
    ("predict", "columns"),
    ("choose", "shared"),
    ("describe", "linear"),
    ("crosstab", "linear"),
]
"""Operation and kind; of standard errors with their kind, if that is not robust. Models of all columns predict alone, the choice is among models for users, and
describe and crosstab know of no kind.
"""


# -- what is asked ---------------------------------------------------------------------------------


def settings(kind):
    """What `solve`, or a study, is given."""
    case = KINDS[kind]
    found = dict(case.settings)
    if case.split == "features":
        found |= {
            "same_order": True,
            "method": "lbfgs",
        }  # which method is fastest depends on the links
    if kind not in ("columns", "personal"):
        found["secure_sums"] = True
    return found | {"max_rounds": min(found["max_rounds"], 20)}


def path_of(kind):
    """Which strengths a path has."""
    return PATH_OF_COLUMNS if kind == "columns" else PATH


def written(kind):
    """[problem] of a study."""
    case = KINDS[kind]
    problem = {"loss": case.loss, "penalty": "l2", "strength": 0.01, "intercept": case.intercept}
    if kind == "low-rank":
        return {
            "loss": case.loss,
            "penalty": "traceball",
            "radius": 4.0,
            "intercept": case.intercept,
        }
    if kind == "shared":
        return problem | {"mu": 0.05}
    if kind == "personal":
        return {"mu": 0.5}
    return problem


def unpenalised(kind):
    """The same problem without a penalty, where standard errors need that."""
    if kind not in UNPENALISED:
        return {}
    case = KINDS[kind]
    return {"problem": co.Problem(case.loss, "none", intercept=case.intercept)}


def tables_of(kind):
    """One table for each party, as it is read of its file."""
    found = []
    for table, name in zip(KINDS[kind].tables(), NAMES, strict=True):
        labels = table.y if table.y is None or table.y.dtype.kind == "U" else table.y.astype(float)
        found.append(replace(table, y=labels, name=name, rows=None, cols=None))
    return found


def write_file(file, kind, place):
    """That party's table as a file."""
    table = tables_of(kind)[place]
    names, columns = [*table.columns], [*table.X.T.tolist()]
    if kind == "survival":
        names += ["time", "event", "strata"]
        columns += [table.y[:, column].tolist() for column in (0, 1, 3)]
    elif table.y is not None:
        names.append("y")
        columns.append(table.y.tolist())
    lines = [
        ",".join(names),
        *(",".join(map(str, row)).replace("nan", "") for row in zip(*columns, strict=True)),
    ]
    file.write_text("\n".join(lines) + "\n")


def wards_of(table):
    """The cluster of each row. Some wards have rows at several parties."""
    first = NAMES.index(table.name)
    return np.array([f"ward {(7 * row + first) % 13}" for row in range(table.n)])


def add_wards(folder, kind):
    """Write the clusters into the files of all parties, as a column."""
    for table in tables_of(kind):
        own = folder / table.name
        party = own / "party.toml"
        party.write_text(f'cluster = "ward"\n{party.read_text()}')
        head, *rows = (own / "data.csv").read_text().splitlines()
        lines = [f"{row},{ward}" for row, ward in zip(rows, wards_of(table), strict=True)]
        (own / "data.csv").write_text("\n".join([f"{head},ward", *lines]) + "\n")


def raw_text(place):
    """Rows with text and missing values, as a file."""
    random = np.random.default_rng(place)
    lines = ["ward,grade,age"]
    for row in range(24):
        age = "" if row % 9 == 4 else f"{random.normal(60, 9):.1f}"
        lines.append(f"{'abc'[random.integers(3)]},{random.integers(1, 4)},{age}")
    return "\n".join(lines) + "\n"


def raw_table(place):
    """The same as a table."""
    return co.read(pd.read_csv(io.StringIO(raw_text(place))), prepare=RAW)


# -- what is compared ------------------------------------------------------------------------------


def of_result(result):
    certificate = result.certificate
    return {
        "status": str(result.status),
        "rounds": result.rounds,
        "primal": certificate.primal,
        "gap": certificate.gap,
        "gaps": np.array(result.history.gap),
        "classes": None if result.model.classes_ is None else result.model.classes_.tolist(),
    }


def of_verification(found):
    return {
        "holds": found.holds,
        "objections": found.objections,
        "primal": found.primal,
        "gap": found.gap,
    }


def of_choice(choice, trials, bill):
    names = ("strength", "mu", "nu", "score", "loss", "bits", "folds")
    return {
        "choice": choice,
        "choices": [trial["choice"] for trial in trials],
        "numbers": np.array([[float(trial[name]) for name in names] for trial in trials]),
        "bill": bill,
    }


def of_path(kind, paths):
    first = paths[0]
    return {
        "strengths": np.array(first.strengths),
        "marks": first.scores,
        "chosen": first.chosen_strength,
        "scores": scores(kind, [one.chosen_result.model for one in paths]),
        "bills": [bill_of(one.bill) for one in first.results],
        "validation": vars(first.validation),
    }


def bill_of(bill):
    return vars(bill.total)


def scores(kind, models):
    """What the parties' models, or parts of one, say of each party's rows."""
    case, tables = KINDS[kind], tables_of(kind)
    if case.split == "users":
        every = zip(models, tables, strict=True)
        return np.concatenate(
            [model.decision_function(own.X, [own.name] * own.n) for model, own in every]
        )
    if case.split == "features" and models[0] is not models[1]:
        return sum(
            own.X @ model.coef_ + model.intercept_
            for model, own in zip(models, tables, strict=True)
        )
    if case.prepare:
        found = [
            model.decision_function(co.Table(case.rows, columns=case.whole().columns))
            for model in models
        ]
        return found[0]
    whole = np.hstack([own.X for own in tables]) if case.split == "features" else case.whole().X
    found = [model.decision_function(whole) for model in models]
    for one in found:
        np.testing.assert_array_equal(one, found[0])
    return found[0]


def assert_alike(found, expected, exact=True):
    """The same answers: to the last bit, or to ten digits."""
    assert found.keys() == expected.keys(), (found.get("refused"), expected.get("refused"))
    for name, own in expected.items():
        if isinstance(own, dict) and not name.startswith(("bill", "validation")):
            assert_alike(found[name], own, exact)
        elif isinstance(own, float | np.ndarray):
            off = 0 if exact else 1e-9
            np.testing.assert_allclose(found[name], own, rtol=off, atol=off, err_msg=name)
        else:
            assert found[name] == own, f"{name}: {found[name]} is not {own}"


if __name__ == "__main__":
    from coterie.engines.mpi import Mpi

    answers = {CELLS[int(place)]: ask(*CELLS[int(place)], On("mpi")) for place in sys.argv[2:]}
    if Mpi().writes_output:
        Path(sys.argv[1]).write_bytes(pickle.dumps(answers))
