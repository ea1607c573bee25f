"""Compare the other files in a folder of a result: scores, a path of strengths, a choice among
models, and a bill.

evaluation.json  computed again from the held-out rows, where the file says which they are
path/            every certificate of the path, and which strength is chosen
choice.json      what was chosen, with the run and the certificate; scores of what was tried need
                 all fits again
bill.json        what the run, the path and the standard errors sent, with their own files
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
from coterie.run.bill import Bill
from coterie.run.certificate import Certificate
from coterie.stats.choosing import FOLDS, LINEAR, words_of
from coterie.stats.strengths import knob

if TYPE_CHECKING:
    from coterie.api.verify import Verification

Verify = Callable[[Result], "Verification"]
"""Checks one result of a path like the main one."""


def with_more(verified: Verification, more: Compared) -> Verification:
    """The verdict on a certificate and on the other files of its folder."""
    return replace(
        verified,
        objections=(*verified.objections, *more.objections),
        compared=(*verified.compared, *more.compared),
        unchecked=(*verified.unchecked, *more.unchecked),
        proves="" if more.objections else verified.proves,
    )


# -- scores ----------------------------------------------------------------------------------------


def compare_evaluation(found: Compared, written: Evaluation, computed: Evaluation) -> None:
    """Compare stored scores with those that these rows give."""
    said, local = _plain(written), _plain(computed)
    wrong = [name for name in local if not _alike(said[name], local[name])]
    objection = f"evaluation.json has other {', '.join(wrong)} than the held-out rows give"
    found.that(not wrong, f"evaluation.json, from {computed.rows} held-out rows", objection)


def compare_unknown_rows(found: Compared, written: Evaluation, model: Any, why: str) -> None:
    """Compare what stored scores say of the model, where the rows are not known."""
    mine = written.model == model.digest()
    found.that(
        mine,
        "evaluation.json: the model that it is about",
        "evaluation.json is about another model",
    )
    found.unchecked.append(f"the scores of evaluation.json, because {why}")


def _plain(evaluation: Evaluation) -> dict[str, Any]:
    """All that is stored of it, as a file has it."""
    curves = {name: points.tolist() for name, points in evaluation.roc.items()}
    content = {**replace(evaluation, held_out=None).summary(), "roc": curves}
    plain: dict[str, Any] = json.loads(json.dumps(without_nan(content)))
    return plain


def _alike(said: Any, local: Any) -> bool:
    """Whether two plain values agree, numbers to `TABLE` relative to themselves."""
    if isinstance(local, dict):
        return (
            isinstance(said, dict)
            and said.keys() == local.keys()
            and all(_alike(said[key], local[key]) for key in local)
        )
    if isinstance(local, list):
        return isinstance(said, list) and len(said) == len(local) and all(map(_alike, said, local))
    if isinstance(local, float | int) and isinstance(said, float | int):
        return math.isclose(said, local, rel_tol=TABLE, abs_tol=TINY)
    return bool(said == local)


# -- a path ----------------------------------------------------------------------------------------


def compare_path(found: Compared, path: Path, chosen: Certificate, verify: Verify | None) -> None:
    """Compare a path with its own certificates, and with that of the model that was chosen.

    verify   checks a result of the path like the main one; None if that was done elsewhere
    """
    before = len(found.objections)
    for strength, result in zip(path.strengths, path.results, strict=True):
        penalty = result.certificate.settings["problem"]["penalty"]
        called = f"path/ at {knob(penalty)} {strength:.4g}"
        if penalty[knob(penalty)] != strength:
            found.objections.append(
                f"{called}: its certificate is about {penalty[knob(penalty)]!r}"
            )
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
        "the scores of path.json and what they cost, which only a new cross-validation gives"
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
        wrong = "lacks what a choice has"
    what = "choice.json: what was chosen, with its prices and the best scores that the run names"
    found.that(wrong is None, what, f"choice.json {wrong}")
    found.unchecked.append(
        "the other scores, losses and bits of choice.json, because only fitting all models again "
        "gives them"
    )


def _wrong_choice(content: dict[str, Any], result: Result) -> str | None:
    """What contradicts the run or the certificate, if anything does."""
    if content.keys() != {"choice", "trials"}:
        return "has other parts than a choice"
    choice, trials = content["choice"], [_numbers(trial) for trial in content["trials"]]
    if choice not in LINEAR:
        return f"names the choice {choice!r}, which does not exist"
    if not result.explanation.endswith(f" {words_of(choice, trials)}"):
        return "tells of another choice than run.json"
    if not trials:
        return None
    settings = result.certificate.settings["problem"]
    held = {"strength": settings["penalty"]["strength"], **settings["shared"]}
    share = 1.0 - 1.0 / FOLDS
    for trial in trials:
        prices = {name: trial[name] * share for name in held}
        if trial["choice"] == choice and all(
            _alike(float(held[name]), price) for name, price in prices.items()
        ):
            return None
    return "has no trial of its choice with the prices of the certificate"


def _numbers(trial: Mapping[str, Any]) -> dict[str, Any]:
    """A trial with its numbers; infinite ones are texts in the file."""
    return {name: value if name == "choice" else float(value) for name, value in trial.items()}


# -- the bill --------------------------------------------------------------------------------------


def bill_as_stored(bill: Bill) -> dict[str, Any]:
    """A bill as bill.json has it."""
    return {"rounds": bill.rounds, "total": vars(bill.total), "bill": bill.table()}


def compare_bill(found: Compared, file: FilePath, result: Result, path: Path | None) -> None:
    """Compare what the run sent with run.json, and what a path sent with its own files."""
    content = _read(file)
    if content is None:
        found.objections.append("bill.json cannot be read")
        return
    expected = bill_as_stored(result.bill)
    if path is not None:
        expected["path"] = {"total": vars(path.total), "validation": vars(path.validation)}
    wrong = [name for name, value in expected.items() if content.get(name) != value]
    beside = ["choice"] if (file.parent / "choice.json").exists() else []
    beside += ["inference"] if "inference" in result.certificate.settings else []
    wrong += sorted(content.keys() ^ {*expected, *beside})
    objection = f"bill.json has another {', '.join(wrong)} than run.json and path/"
    found.that(not wrong, "bill.json, with the bill of run.json", objection)
    if beside:
        named = " and ".join(
            {"choice": "the choice", "inference": "standard errors"}[name] for name in beside
        )
        found.unchecked.append(f"what {named} cost, in bill.json: no other file has it")


def _read(file: FilePath) -> dict[str, Any] | None:
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def path_of(folder: FilePath, found: Compared) -> Path | None:
    """The path that is stored there; an objection if it cannot be read."""
    if not (folder / "path").exists():
        return None
    try:
        return Path.load(folder / "path")
    except CoterieError:
        found.objections.append(
            "path/ was changed after it was written, or has files of different paths"
        )
        return None
