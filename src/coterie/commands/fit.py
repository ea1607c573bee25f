"""`coterie fit`: a certified model from files."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from warnings import catch_warnings, simplefilter

import typer

import coterie as co
from coterie.catalogue import names_in
from coterie.choices import CORRECTIONS, WEIGHTS
from coterie.commands.options import (
    Checkpoint,
    Config,
    Figures,
    Folds,
    Json,
    Question,
    Rule,
    Strengths,
    among,
    any_strength,
    knob_of,
    question,
    strengths_of,
    taking,
)
from coterie.commands.output import show_result
from coterie.errors import InvalidData, InvalidInput

EXAMPLE = "Example: coterie fit patients.csv --target ill --loss logistic --penalty l1 --strength 0.01 --agents 4"


def _strength_to_choose(given: dict[str, Any]) -> None:
    """With --cv, the problem has any strength until one is chosen."""
    if given["cv"] is None:
        if given["strengths"] is not None or given["rule"] != "best":
            raise InvalidInput(
                "--strengths and --rule say what --cv chooses from and how: add --cv 5, or leave them out."
            )
        return
    knob = knob_of(given)
    if given[knob] is not None:
        raise InvalidInput(f"--cv chooses the {knob}: leave --{knob} out, or name those to try with --strengths.")
    any_strength(given)


@taking(question, _strength_to_choose)
def fit(
    question: Question,
    cv: Folds = None,
    strengths: Strengths = None,
    rule: Rule = "best",
    method: Annotated[str, among("auto", *names_in("methods"))] = "auto",
    checkpoint: Checkpoint = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Output folder for model, certificate and report.")
    ] = Path("coterie-fit"),
    inference: Annotated[
        str | None, among("model", "robust", "clustered", also=": standard errors, tests and intervals")
    ] = None,
    weights: Annotated[
        str | None,
        among(
            *WEIGHTS,
            also=": what the weights mean for --inference (needed if some weight is no whole number)",
        ),
    ] = None,
    correction: Annotated[
        str | None,
        among(
            *itertools.chain(*CORRECTIONS.values()),
            also=": correction of --inference robust (HC) or clustered (CR) for small samples",
        ),
    ] = None,
    per_sd: Annotated[
        bool,
        typer.Option("--per-sd", help="Add coefficients per standard deviation, after --prepare standardise."),
    ] = False,
    test: Annotated[
        list[str] | None,
        typer.Option(
            "--test",
            help="Data to evaluate the model on: a file (can be repeated, one per party), or a share of the rows to "
            "hold out, e.g. 0.3.",
        ),
    ] = None,
    figures: Figures = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Fit a model to data held by several parties. Writes model, certificate and report."""
    _check_inference(question, inference, weights, correction, per_sd)
    question, held_out = _with_test(question, test or [])
    tried = strengths_of(strengths)
    output.mkdir(parents=True, exist_ok=True)  # before the fit: an answer without a place would be lost
    how: dict[str, Any] = {"method": method, "checkpoint": checkpoint, "progress": False if as_json else None}
    how |= {**question.settings, **question.options}
    path = None
    if cv is None:
        result = question.named(co.solve(question.problem, question.data, **how))
    else:
        path = co.path(question.problem, question.data, tried, cv=cv, rule=rule, **how)
        path = replace(path, results=tuple(map(question.named, path.results)))
        result = path.chosen_result
    found, refusal = None, None
    if inference is not None:
        try:
            found = _inferred(question, result, inference, weights, correction, per_sd)
        except InvalidData as error:
            refusal = error  # the fit is written all the same
    from coterie.replacing import kept_note, place_for, why_kept

    scores = None
    if held_out is not None:
        engine, agents = question.settings["engine"], None if isinstance(held_out, list) else result.network.agents
        given = {"split": question.split, "engine": engine, "secure_sums": question.settings["secure_sums"]}
        given["same_order"] = question.settings["same_order"]
        scores = co.evaluate(result, held_out, agents=agents, **given)
    if not question.settings["engine"].speaks:
        raise typer.Exit(result.status.exit_code)
    why = why_kept(output, result)
    if why is not None:
        result = replace(result, warnings=(*result.warnings, kept_note(output, why)))
    output = place_for(output, why)
    result.save(output)
    if figures is not None:
        co.report.save_figures(result, output / "figures", figures, evaluation=scores)
    sections = []
    if path is not None:
        path.save(output / "path")
        co.report.write_path(path, output / "path" / "report.html")
        sections.append(co.report.path_section(path))
    if found is not None:
        found.save(output / "inference.json")
        sections.append(co.report.inference_section(found))
    if question.read is not None:
        sections += question.problem.kind.sections(partial(_strata, question))
    if scores is not None:
        scores.save(output / "evaluation.json")
    page = co.report.write_report(result, output / "report.html", sections=sections, evaluation=scores)
    show_result(result, output, page, as_json and refusal is None, found, path, scores)
    if refusal is not None:
        raise refusal
    raise typer.Exit(result.status.exit_code)


def _with_test(question: Question, test: list[str]) -> tuple[Question, Any]:
    """The question without the rows that are held out, and the data to evaluate on, if any."""
    if not test:
        return question, None
    if question.read is None:
        raise InvalidInput("--test is for one model of all rows; leave it out for a model per user.")
    from coterie.session.scoring import check_problem

    check_problem(question.problem)
    share = _share(test)
    if share is None:
        return question, question.read([Path(file) for file in test])
    if question.clusters is not None:
        raise InvalidInput("with --cluster, give a file to --test instead of a share of the rows.")
    several = isinstance(question.data, list)
    tables = question.data if several else [question.data]
    kept, held = co.data.hold_out(tables, share, by=question.split, seed=question.settings["seed"])
    return replace(question, data=kept if several else kept[0]), held if several else held[0]


def _strata(question: Question) -> list[co.Table]:
    """The rows of each party; or of each agent, where agents are strata."""
    if isinstance(question.data, list):
        return question.data
    agents = question.settings["agents"] or 1
    return [question.data] if agents == 1 else co.data.split(question.data, "samples", agents)


def _share(test: list[str]) -> float | None:
    try:
        return float(test[0]) if len(test) == 1 else None
    except ValueError:
        return None


def _inferred(
    question: Question, result: co.Result, kind: str, weights: str | None, correction: str | None, per_sd: bool
) -> co.Inference:
    """Standard errors; their warnings are printed below the table."""
    clusters = question.clusters if kind == "clustered" else None
    if clusters is not None and len(clusters) == 1:
        clusters = clusters[0]
    with catch_warnings():
        simplefilter("ignore", UserWarning)
        return result.inference(kind, clusters, weights=weights, correction=correction, per_sd=per_sd)


def _check_inference(
    question: Question, kind: str | None, weights: str | None, correction: str | None, per_sd: bool
) -> None:
    """Refused before a long fit rather than after it."""
    from coterie.session.standard_errors import Question as Asked
    from coterie.session.standard_errors import check_problem, refuse_fractional

    if kind is None:
        given = {"--weights": weights, "--correction": correction, "--per-sd": per_sd or None}
        if unused := [flag for flag, value in given.items() if value is not None]:
            raise InvalidInput(f"{unused[0]} is for standard errors: add --inference model, say, or leave it out.")
    else:
        asked = Asked.of(kind, weights, correction)
    if (kind == "clustered") != (question.clusters is not None):
        raise InvalidInput("--inference clustered and --cluster COLUMN belong together: give both, or neither.")
    if kind is None:
        return
    check_problem(question.problem, question.split, asked.kind)
    if per_sd and not any("standardise" in line for line in _recipes(question)):
        raise InvalidInput("--per-sd is for standardised columns: add --prepare standardise, or leave it out.")
    tables = question.data if isinstance(question.data, list) else [question.data]
    held = [table.weights for table in tables if table.weights is not None]
    refuse_fractional(weights, sum(int((own != own.round()).sum()) for own in held))


def _recipes(question: Question) -> list[str]:
    """The recipes of the preparation, if there is one."""
    found: list[str] = question.settings["prepare"].lines() if "prepare" in question.settings else []
    return found
