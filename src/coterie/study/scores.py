"""Predict and evaluate rows of all parties together.

split by features    each party has a part of the scores; only the party with the labels receives
                     the sum
split by samples     each party has the whole model, and predicts alone; measures are sums over all
                     rows
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from coterie.api.evaluate import Evaluate
from coterie.api.evaluation import Evaluation
from coterie.data import Table
from coterie.errors import InvalidData, InvalidInput
from coterie.problems.linear.model import LinearModel
from coterie.problems.models import AnyModel, load_model
from coterie.run.setup import check_offset
from coterie.stats.scoring import check_problem
from coterie.study.among import Part
from coterie.study.consent import Consent, require
from coterie.study.party import read_new, read_test
from coterie.study.prediction import Predict, Predictions
from coterie.study.session import Say, Session
from coterie.study.study import PartyFile, Study

EVALUATION = f"{Evaluate.file}.json"


def predict_together(
    own: PartyFile,
    study: Study,
    data: Path,
    *,
    say: Say = lambda text: None,
    before: Callable[[Session], None] = lambda session: None,
    consent: Consent = None,
) -> Predictions:
    """Compute the scores of new rows, from all parts of the model; only the party with the labels
    receives them.

    before    a step of all parties, after they have connected
    consent   True, or a function that gets the page of messages and returns whether this party
              agrees. Not needed if the party agreed to a page of this version of the study before.
    """
    if study.split != "features":
        raise InvalidInput("split by samples, every party has the whole model, and predicts alone.")
    model, table = own_part(own), read_new(own, study, data, labelled=False)
    _refuse_others(own, model, table, data)
    part = Part(own, study, say)
    asked = Predict(model, own.target, name_of_model(own))
    require(own, study, asked.name, part.page(asked, table, table), consent)
    return part.take(asked, table, before)


def evaluate_together(
    own: PartyFile,
    study: Study,
    data: Path | None = None,
    *,
    say: Say = lambda text: None,
    consent: Consent = None,
) -> Evaluation | None:
    """Evaluate how well the study's model predicts held-out rows (`test` in party.toml), or other
    files.

    Split by features, only the party with the labels gets an evaluation, the others None. A party
    without such rows takes part without any.

    consent   True, or a function that gets the page of messages and returns whether this party
              agrees. Not needed if the party agreed to the same page before.
    """
    check_problem(study.make_problem())
    model = own_model(own)
    asked = Evaluate(model, study.split, name_of_model(own))
    table = asked.alone(read_test(own, study, data, model))
    part = Part(own, study, say)
    require(own, study, asked.name, part.page(asked, table, table), consent)
    return part.take(asked, table)


def name_of_model(own: PartyFile) -> str:
    """The name of the file with a party's part of the model, in messages to the user."""
    return f"{own.output.name}/model.npz"


def own_model(own: PartyFile) -> AnyModel:
    """This party's model, or its part of one."""
    return load_model(_file_of_model(own))


def own_part(own: PartyFile) -> LinearModel:
    """This party's part of a model, if the parties have different columns: only linear models have
    parts.
    """
    return LinearModel.load(_file_of_model(own))


def _file_of_model(own: PartyFile) -> Path:
    path = own.output / "model.npz"
    if not path.is_file():
        raise InvalidInput(f"{path} does not exist: fit the study first, with `coterie agent`.")
    return path


def _refuse_others(own: PartyFile, model: LinearModel, table: Table, data: Path) -> None:
    """Refuse other columns than the model's, and rows with an offset for a model without one, or
    the other way round.
    """
    if table.n and own.target is not None:
        check_offset(model.problem, table.offset is not None)
    if table.d != model.coef_.shape[-1]:
        raise InvalidData(
            f"the model has {model.coef_.shape[-1]} columns, but {data} has {table.d}."
        )
