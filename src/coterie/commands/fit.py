"""`coterie fit`: a certified model from files."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from warnings import catch_warnings, simplefilter

import typer

import coterie as co
from coterie.choices import CORRECTIONS, WEIGHTS
from coterie.commands.files import one_or_list
from coterie.commands.options import (
    Checkpoint,
    Config,
    Figures,
    FitFolder,
    Folds,
    Json,
    Method,
    Rule,
    Strengths,
    among,
)
from coterie.commands.output import Saved, show_result
from coterie.commands.question import Question, any_strength, knob_of, strengths_of, taking_question
from coterie.errors import InvalidData, InvalidInput
from coterie.run.settings import Algorithm, Settings

EXAMPLE = (
    "Example: coterie fit patients.csv --target ill --loss logistic --penalty l1 --strength 0.01 "
    "--agents 4"
)
Inference = Annotated[
    str | None,
    among("model", "robust", "clustered", also=": standard errors, tests and intervals"),
]
Weights = Annotated[
    str | None,
    among(
        *WEIGHTS,
        also=": what the weights mean for --inference (needed if some weight is no whole number)",
    ),
]
Correction = Annotated[
    str | None,
    among(
        *itertools.chain(*CORRECTIONS.values()),
        also=": correction of --inference robust (HC) or clustered (CR) for small samples",
    ),
]
PerSd = Annotated[
    bool,
    typer.Option(
        "--per-sd", help="Add coefficients per standard deviation, after --prepare standardise."
    ),
]
Test = Annotated[
    list[str] | None,
    typer.Option(
        "--test",
        help="Data to evaluate the model on: a file (can be repeated, one per party), or a "
        "share of the rows to hold out, e.g. 0.3.",
    ),
]


def _strength_to_choose(given: dict[str, Any]) -> None:
    """With --cv, let the problem have any strength until cross-validation chooses one."""
    if given["cv"] is None:
        if given["strengths"] is not None or given["rule"] != "best":
            raise InvalidInput(
                "--strengths and --rule apply only to the choice with --cv: add --cv 5, or leave "
                "them out."
            )
        return
    knob = knob_of(given)
    if given[knob] is not None:
        raise InvalidInput(
            f"--cv chooses the {knob}: leave --{knob} out, or name those to try with --strengths."
        )
    any_strength(given)


@taking_question(_strength_to_choose)
def fit(
    question: Question,
    cv: Folds = None,
    strengths: Strengths = None,
    rule: Rule = "best",
    method: Method = Algorithm.method,
    checkpoint: Checkpoint = Settings.checkpoint,
    output: FitFolder = Path("coterie-fit"),
    inference: Inference = None,
    weights: Weights = None,
    correction: Correction = None,
    per_sd: PerSd = False,
    test: Test = None,
    figures: Figures = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Fit a model to data held by several parties. Writes model, certificate and report."""
    errors = StandardErrors(inference, weights, correction, per_sd)
    errors.check(question)
    given = test or []
    question, held_out = _with_test(question, given)
    tried = strengths_of(strengths)
    output.mkdir(parents=True, exist_ok=True)  # before the fit, so that its answer can be written
    progress = None
    if as_json:
        progress = False
    settings = question.settings.but(method=method, checkpoint=checkpoint, progress=progress)
    found = _solved(replace(question, settings=settings), cv, tried, rule)
    found = errors.add(question, found)
    if held_out is not None:
        scores = _evaluated(question, found.result, held_out)
        which = _held_out_rows(question, given)
        found = replace(found, evaluation=replace(scores, held_out=which))
    if question.engine.writes_output:
        _write(question, found, output, figures, as_json)
        if found.refusal is not None:
            raise found.refusal
    raise typer.Exit(found.result.status.exit_code)


@dataclass(frozen=True)
class Answer:
    """The answer to a question: a fit, and everything that was computed with it."""

    result: co.Result
    path: co.Path | None = None
    inference: co.Inference | None = None
    evaluation: co.Evaluation | None = None
    refusal: InvalidData | None = None
    """Why there are no standard errors. The fit is written all the same."""


def _solved(question: Question, cv: int | None, strengths: list[float] | None, rule: str) -> Answer:
    """Fit once, or fit the path from which cross-validation chooses."""
    if cv is None:
        return Answer(question.solve())
    path = question.path(strengths, cv, rule)
    return Answer(path.chosen_result, path)


def _evaluated(question: Question, result: co.Result, held_out: Any) -> co.Evaluation:
    """Compute scores on rows that were held out."""
    settings = question.settings
    agents = None
    if not isinstance(held_out, list):
        agents = result.network.agents
    return co.evaluate(
        result,
        held_out,
        agents=agents,
        split=question.split,
        engine=question.engine,
        secure_sums=settings.secure_sums,
        same_order=settings.placement.same_order,
    )


def _write(
    question: Question, found: Answer, output: Path, figures: str | None, as_json: bool
) -> None:
    """Write the answer and its report, and print it."""
    from coterie.api.replacing import kept_note, place_for, why_kept

    result = found.result
    path = found.path
    scores = found.evaluation
    why = why_kept(output, result)
    if why is not None:
        result = replace(result, warnings=(*result.warnings, kept_note(output, why)))
    output = place_for(output, why)
    result.save(output)
    if figures is not None:
        co.report.save_figures(result, output / "figures", figures, evaluation=scores)
    if path is not None:
        path.save(output / "path")
        co.report.write_path(path, output / "path" / "report.html")
    if found.inference is not None:
        found.inference.save(output / "inference.json")
    if scores is not None:
        scores.save(output / "evaluation.json")
    sections = _sections(question, found)
    page = output / "report.html"
    co.report.write_report(result, page, sections=sections, evaluation=scores)
    saved = Saved(result, output, page, found.inference, path, scores)
    show_result(saved, as_json and found.refusal is None)


def _sections(question: Question, found: Answer) -> list[Any]:
    """Make the sections of the report about the path, standard errors and the kind of problem."""
    sections: list[Any] = []
    if found.path is not None:
        sections.append(co.report.path_section(found.path))
    if found.inference is not None:
        sections.append(co.report.inference_section(found.inference))
    if question.read is not None:
        sections += question.problem.kind.report.sections(partial(_strata, question))
    return sections


def _with_test(question: Question, test: list[str]) -> tuple[Question, Any]:
    """The question without the rows that are held out, and the data to evaluate on, if any."""
    if not test:
        return question, None
    if question.read is None:
        raise InvalidInput(
            "--test is for one model of all rows; leave it out for a model per user."
        )
    from coterie.stats.scoring import check_problem

    check_problem(question.problem)
    share = _share(test)
    if share is None:
        return question, question.read([Path(file) for file in test])
    if question.clusters is not None:
        raise InvalidInput("with --cluster, give a file to --test instead of a share of the rows.")
    seed = question.settings.seed
    kept, held = co.data.hold_out(question.tables, share, by=question.split, seed=seed)
    if isinstance(question.data, list):
        return replace(question, data=kept), held
    return replace(question, data=kept[0]), held[0]


def _held_out_rows(question: Question, test: list[str]) -> dict[str, Any]:
    """Describe which rows are held out, for evaluation.json."""
    share = _share(test)
    if share is None:
        return {"files": list(test)}
    return {"share": share, "seed": question.settings.seed}


def _strata(question: Question) -> list[co.Table]:
    """The rows of each party; or of each agent, where agents are strata."""
    if isinstance(question.data, list):
        return question.data
    agents = question.settings.placement.agents or 1
    if agents == 1:
        return [question.data]
    return co.data.split(question.data, "samples", agents)


def _share(test: list[str]) -> float | None:
    """Read `--test 0.3` as a share; None for files."""
    if len(test) != 1:
        return None
    try:
        return float(test[0])
    except ValueError:
        return None


@dataclass(frozen=True)
class StandardErrors:
    """Which standard errors the command asks for, if any."""

    kind: str | None
    weights: str | None
    correction: str | None
    per_sd: bool

    def check(self, question: Question) -> None:
        """Refuse options that do not belong together, before a long fit."""
        from coterie.stats.standard_errors import Question as Asked
        from coterie.stats.standard_errors import check_problem, refuse_fractional

        asked = None
        if self.kind is None:
            self._check_unused()
        else:
            asked = Asked.of(self.kind, self.weights, self.correction)
        if (self.kind == "clustered") != (question.clusters is not None):
            raise InvalidInput(
                "--inference clustered and --cluster COLUMN belong together: give both, or neither."
            )
        if asked is None:
            return
        check_problem(question.problem, question.split, asked.kind)
        if self.per_sd and not any("standardise" in line for line in _recipes(question)):
            raise InvalidInput(
                "--per-sd is for standardised columns: add --prepare standardise, or leave it out."
            )
        refuse_fractional(self.weights, sum(map(_fractional_weights, question.tables)))

    def _check_unused(self) -> None:
        given = {"--weights": self.weights, "--correction": self.correction}
        unused = [flag for flag, value in given.items() if value is not None]
        if self.per_sd:
            unused.append("--per-sd")
        if unused:
            raise InvalidInput(
                f"{unused[0]} is for standard errors: add, for example, --inference model, or "
                "leave it out."
            )

    def add(self, question: Question, found: Answer) -> Answer:
        """The answer with standard errors; the report prints their warnings below the table."""
        if self.kind is None:
            return found
        how: dict[str, Any] = {"weights": self.weights, "correction": self.correction}
        clusters: Any = None
        if question.clusters is not None and self.kind == "clustered":
            clusters = one_or_list(question.clusters)
        try:
            with catch_warnings():
                simplefilter("ignore", UserWarning)
                inference = found.result.inference(self.kind, clusters, per_sd=self.per_sd, **how)
        except InvalidData as refusal:
            return replace(found, refusal=refusal)
        return replace(found, inference=inference)


def _fractional_weights(table: co.Table) -> int:
    weights = table.weights
    if weights is None:
        return 0
    return int((weights != weights.round()).sum())


def _recipes(question: Question) -> list[str]:
    """The recipes of the preparation, if there is one."""
    prepare = question.settings.prepare
    if prepare is None:
        return []
    return list(prepare.lines())
