"""What the report says of a model: coefficients, singular values, or whatever a model of another kind has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from coterie.families import family_of
from coterie.models import PersonalModel
from coterie.report.figures import SHOWN_COEFFICIENTS, accuracies, largest, model_figures
from coterie.report.html import definitions, details, figure_block, paragraph, section, table
from coterie.report.words import number, plain, shortened, text
from coterie.result import Result

__all__ = ["described", "kind_of_model", "model_section", "problem_facts", "written_value"]


def kind_of_model(result: Result) -> str:
    """What came out, in two words."""
    if hasattr(result.model, "singular_values_"):
        return "low-rank model"
    if isinstance(result.model, PersonalModel):
        return "model for each of them"
    return "linear model" if np.ndim(getattr(result.model, "coef_", ())) == 1 else "model"


def model_section(result: Result) -> str:
    """The model: its picture, its facts, and its largest numbers as a table."""
    if hasattr(result.model, "singular_values_"):
        explained, rows, headings = _low_rank(result.model)
    elif isinstance(result.model, PersonalModel):
        explained, rows, headings = _personal(result)
    elif kind_of_model(result) == "linear model":
        explained, rows, headings = _linear(result)
    else:
        explained, rows, headings = "", [], ("", "")
    described = definitions(_facts(result))
    pictures = model_figures(result)
    if not pictures:
        return section("The model", paragraph(explained) if explained else "", described, id="model")
    drawn = "".join(figure_block(figure, name, name.replace("-", " ")) for name, figure in pictures.items())
    folded = details("The same as a table", table(headings, rows, numbers_from=1))
    return section(
        "The model",
        paragraph(explained),
        f'<div class="pair">{drawn}<div>{described}{folded}</div></div>',
        id="model",
    )


def _linear(result: Result) -> tuple[str, list[tuple[str, str]], tuple[str, str]]:
    shown = largest(result)
    if not shown:
        return "Every coefficient is zero: the model does not use any column.", [], ("", "")
    many = np.count_nonzero(result.model.coef_) > SHOWN_COEFFICIENTS
    which = f"The {len(shown)} largest coefficients" if many else "All coefficients that are not zero"
    explained = (
        f"{which}, largest first. A positive one raises the prediction as its column grows, a negative one lowers "
        "it. Their sizes can only be compared if the columns are on the same scale."
    )
    return explained, [(text(name), number(value, 6)) for name, value in shown], ("column", "coefficient")


def _low_rank(model: Any) -> tuple[str, list[tuple[str, str]], tuple[str, str]]:
    values = np.sort(np.asarray(model.singular_values_, float))[::-1]
    explained = (
        "The model is a matrix made of few patterns. Its singular values say how much each pattern weighs; where they "
        "fall steeply, a few patterns explain nearly everything."
    )
    rows = [(str(k), number(float(value), 6)) for k, value in enumerate(values, 1)]
    return explained, rows, ("pattern", "singular value")


def _personal(result: Result) -> tuple[str, list[tuple[str, str]], tuple[str, str]]:
    found = accuracies(result)
    fewest = (
        f"The {SHOWN_COEFFICIENTS} users with the lowest" if len(found) > SHOWN_COEFFICIENTS else "For each user, the"
    )
    explained = (
        f"{fewest} share of its own rows that its model classifies rightly: at least so much, by a bound that the loss "
        "gives. It says nothing yet of new rows."
    )
    return explained, [(text(name), f"{value:.1%}") for name, value in found], ("user", "right, at least")


def _facts(result: Result) -> Iterator[tuple[str, str]]:
    model: Any = result.model
    coef: Any = getattr(model, "coef_", None)
    if coef is not None and np.ndim(coef) == 1:
        yield "Coefficients", f"{np.count_nonzero(coef):,} of {len(coef):,} are not zero"
        yield "Intercept", number(float(model.intercept_), 6) if model.problem.intercept else "none"
    elif coef is not None:
        yield "Shape", " × ".join(f"{length:,}" for length in np.shape(coef))
    if hasattr(model, "rank_"):
        yield "Rank", f"{int(model.rank_):,}"
    if isinstance(model, PersonalModel):
        yield "Users", f"{len(model.users):,}"
        yield "Links between them", f"{result.network.n_edges:,}"
        yield "Base predictors used", f"{model.coef_.nnz / max(len(model.users), 1):.3g} per user"
    classes = getattr(model, "classes_", None)
    if classes is not None and len(classes) == 2 and np.ndim(coef) == 1:
        labels = [text(written_value(label)) for label in np.asarray(classes).tolist()]
        yield "Classes", " and ".join(labels) + f": a positive score means {labels[-1]}"
    elif classes is not None:
        yield "Classes", f"{len(classes):,}"
    if coef is None:
        yield "Kind", text(type(model).__name__)
        for name, value in sorted(vars(model).items()):
            if isinstance(value, np.ndarray):
                yield text(name), " × ".join(f"{length:,}" for length in value.shape) or written_value(value.item())


def written_value(value: object) -> str:
    """A setting or label, short."""
    return shortened(number(value, 12) if isinstance(value, float) else plain(value), 60)


def problem_facts(result: Result) -> list[tuple[str, str]]:
    """What was minimised: headings and their contents."""
    family = family_of(result.model.problem)
    return [(name, described(part)) for name, part in family.parts(result.certificate.settings["problem"])]


def described(part: Mapping[str, Any]) -> str:
    """A name with its parameters: "l2 (strength = 0.01)"."""
    parameters = ", ".join(f"{name} = {written_value(value)}" for name, value in part.items() if name != "name")
    return text(part["name"]) + (f' <span class="muted">({text(parameters)})</span>' if parameters else "")
