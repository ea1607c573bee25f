"""Compare the other files in the folder of a result: scores, a path of strengths, a choice among
models, and a bill.

evaluation.json  scores are computed again from the held-out rows, if the file names these
path/            every certificate of the path is checked, and which strength is chosen
choice.json      the chosen model is compared with the run and the certificate; the scores of the
                 other models would need all fits again
bill.json        the cost of the run and of the path is compared with their own files
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from coterie.api.comparison import TABLE, TINY, Compared
from coterie.api.evaluation import Evaluation
from coterie.api.path import Path
from coterie.api.result import Result
from coterie.data.archives import without_nan
from coterie.errors import CoterieError
from coterie.problems.models import AnyModel
from coterie.run.bill import Bill
from coterie.run.certificate import Certificate
from coterie.stats.choosing import FOLDS, LINEAR, words_of
from coterie.stats.strengths import knob

if TYPE_CHECKING:
    from coterie.api.verify import Verification

Verify = Callable[[Result], "Verification"]
"""A function that checks one result of a path like the main one."""


def with_more(verified: Verification, more: Compared) -> Verification:
    """Combine the verification of a certificate with that of the other files of its folder."""
    proves = verified.proves
    if more.objections:
        proves = ""
    return replace(
        verified,
        objections=(*verified.objections, *more.objections),
        compared=(*verified.compared, *more.compared),
        unchecked=(*verified.unchecked, *more.unchecked),
        proves=proves,
    )


# -- scores ----------------------------------------------------------------------------------------


def compare_evaluation(found: Compared, written: Evaluation, computed: Evaluation) -> None:
    """Compare stored scores with those that were computed from the held-out rows."""
    stored = _plain(written)
    local = _plain(computed)
    wrong = [name for name in local if not _alike(stored[name], local[name])]
    objection = f"evaluation.json has other {', '.join(wrong)} than the held-out rows give"
    found.that(not wrong, f"evaluation.json, from {computed.rows} held-out rows", objection)


def compare_unknown_rows(found: Compared, written: Evaluation, model: AnyModel, why: str) -> None:
    """Compare the model of stored scores, where the rows are not known."""
    mine = written.model == model.digest()
    found.that(
        mine,
        "evaluation.json: the model that it is about",
        "evaluation.json is about another model",
    )
    found.unchecked.append(f"the scores of evaluation.json, because {why}")


def _plain(evaluation: Evaluation) -> dict[str, Any]:
    """Write an evaluation as its file has it."""
    curves = {name: points.tolist() for name, points in evaluation.roc.items()}
    content = {**replace(evaluation, held_out=None).summary(), "roc": curves}
    plain: dict[str, Any] = json.loads(json.dumps(without_nan(content)))
    return plain


def _alike(stored: Any, local: Any) -> bool:
    """Whether two plain values agree, numbers up to `TABLE` relative to themselves."""
    if isinstance(local, dict):
        if not isinstance(stored, dict) or stored.keys() != local.keys():
            return False
        return all(_alike(stored[key], local[key]) for key in local)
    if isinstance(local, list):
        if not isinstance(stored, list) or len(stored) != len(local):
            return False
        return all(map(_alike, stored, local))
    if isinstance(local, float | int) and isinstance(stored, float | int):
        return math.isclose(stored, local, rel_tol=TABLE, abs_tol=TINY)
    return bool(stored == local)


# -- a path ----------------------------------------------------------------------------------------


def compare_path(found: Compared, path: Path, chosen: Certificate, verify: Verify | None) -> None:
    """Compare a path with its own certificates, and with that of the model that was chosen.

    Parameters
    ----------
    found : Compared
        Collects the outcome.
    path : Path
        The stored path.
    chosen : Certificate
        The certificate of the chosen model.
    verify : callable or None
        Checks a result of the path like the main one. None if other parties checked them.
    """
    before = len(found.objections)
    for strength, result in zip(path.strengths, path.results, strict=True):
        penalty = result.certificate.settings["problem"]["penalty"]
        name = knob(penalty)
        called = f"path/ at {name} {strength:.4g}"
        if penalty[name] != strength:
            found.objections.append(f"{called}: its certificate is about {penalty[name]!r}")
        if verify is not None:
            found.objections += [f"{called}: {text}" for text in verify(result).objections]
    if path.scores is None:
        found.objections.append("path/path.json has no scores, by which a strength was chosen")
    elif path.scores.shape[1] != len(path.strengths):
        found.objections.append("path/path.json has scores of another number of strengths")
    elif path.chosen_result.certificate.model_digest != chosen.model_digest:
        found.objections.append("path/path.json chooses another strength than that of the model")
    if len(found.objections) == before:
        count = len(path.results)
        found.compared.append(
            f"path/: {count} certificates with their runs, their strengths, and which one is chosen"
        )
    found.unchecked.append(
        "the scores of path.json and their cost, which only a new cross-validation gives"
    )


# -- a choice among models -------------------------------------------------------------------------


def compare_choice(found: Compared, file: FilePath, result: Result) -> None:
    """Compare which model was chosen with the run and the certificate."""
    content = _read(file)
    if content is None:
        found.objections.append("choice.json cannot be read")
        return
    try:
        wrong = _wrong_choice(content, result)
    except (KeyError, TypeError, ValueError, AttributeError):
        wrong = "lacks a part of a choice"
    compared = (
        "choice.json: the chosen model, with its prices and the best scores that the run names"
    )
    found.that(wrong is None, compared, f"choice.json {wrong}")
    found.unchecked.append(
        "the other scores, losses and bits of choice.json, because only fitting all models again "
        "gives them"
    )


def _wrong_choice(content: dict[str, Any], result: Result) -> str | None:
    """The first contradiction between a choice and the run or the certificate, if there is one."""
    if content.keys() != {"choice", "trials"}:
        return "has other parts than a choice"
    choice = content["choice"]
    trials = [_numbers(trial) for trial in content["trials"]]
    if choice not in LINEAR:
        return f"names the choice {choice!r}, which does not exist"
    if not result.explanation.endswith(f" {words_of(choice, trials)}"):
        return "has another choice than run.json"
    if not trials:
        return None
    settings = result.certificate.settings["problem"]
    held = {"strength": settings["penalty"]["strength"], **settings["shared"]}
    if any(_has_prices(trial, held) and trial["choice"] == choice for trial in trials):
        return None
    return "has no trial of its choice with the prices of the certificate"


def _has_prices(trial: Mapping[str, Any], held: Mapping[str, Any]) -> bool:
    """Whether a trial, of a part of the rows, had the prices of the chosen fit of all rows."""
    share = 1.0 - 1.0 / FOLDS
    prices = {name: trial[name] * share for name in held}
    return all(_alike(float(held[name]), price) for name, price in prices.items())


def _numbers(trial: Mapping[str, Any]) -> dict[str, Any]:
    """Read the numbers of a trial; infinite ones are texts in the file."""
    found = {name: float(value) for name, value in trial.items() if name != "choice"}
    return {**found, "choice": trial["choice"]}


# -- the bill --------------------------------------------------------------------------------------


def bill_as_stored(bill: Bill) -> dict[str, Any]:
    """Write a bill as bill.json has it."""
    return {"rounds": bill.rounds, "total": vars(bill.total), "bill": bill.table()}


def compare_bill(found: Compared, file: FilePath, result: Result, path: Path | None) -> None:
    """Compare the cost of the run with run.json, and the cost of a path with its own files."""
    content = _read(file)
    if content is None:
        found.objections.append("bill.json cannot be read")
        return
    expected = bill_as_stored(result.bill)
    if path is not None:
        expected["path"] = {"total": vars(path.total), "validation": vars(path.validation)}
    wrong = [name for name, value in expected.items() if content.get(name) != value]
    unchecked = {}
    if (file.parent / "choice.json").exists():
        unchecked["choice"] = "the choice"
    if "inference" in result.certificate.settings:
        unchecked["inference"] = "standard errors"
    wrong += sorted(content.keys() ^ {*expected, *unchecked})
    objection = f"bill.json has another {', '.join(wrong)} than run.json and path/"
    found.that(not wrong, "bill.json, with the bill of run.json", objection)
    if unchecked:
        named = " and ".join(unchecked.values())
        found.unchecked.append(f"the cost of {named}, in bill.json: no other file has it")


def _read(file: FilePath) -> dict[str, Any] | None:
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict):
        return None
    return content


def path_of(folder: FilePath, found: Compared) -> Path | None:
    """Load the path in a folder; note an objection if it cannot be read."""
    if not (folder / "path").exists():
        return None
    try:
        return Path.load(folder / "path")
    except CoterieError:
        found.objections.append(
            "path/ was changed after it was written, or has files of different paths"
        )
        return None
