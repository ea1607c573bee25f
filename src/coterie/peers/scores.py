"""What a model says of rows that all parties look at together: predictions, and how good they are.

split by features    each party has a part of the scores; the sum travels to the party with the labels, and no further
split by samples     each party has the whole model, and predicts alone; how good it is are sums over all rows
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.arrays import FloatArray
from coterie.data import Table
from coterie.data.summary import refuse_unequal_rows
from coterie.errors import CoterieError, InvalidData, InvalidInput, ProtocolError
from coterie.evaluate import Evaluate, refuse_other_runs
from coterie.evaluation import Evaluation
from coterie.models import load_model
from coterie.peers.among import Part
from coterie.peers.chaos import Chaos
from coterie.peers.consent import Consent, require_for_study
from coterie.peers.disclosure import disclosure
from coterie.peers.party import read_new, read_own, read_test
from coterie.peers.session import Say, Session, in_session, matched
from coterie.peers.study import PartyFile, Study
from coterie.problems.linear.model import LinearModel
from coterie.session.scoring import check_problem, raw_scores
from coterie.session.setup import check_offset
from coterie.transport.links import Tag

EVALUATION = f"{Evaluate.file}.json"


@dataclass(frozen=True)
class Predictions:
    """What is known at one party."""

    model: LinearModel
    """Its part of the model, with everybody's classes."""
    table: Table
    """Its rows, in the order of the predictions; `rows` are their places in its file."""
    scores: FloatArray | None
    """The scores of the whole model, at the party with the labels."""

    @property
    def answers(self) -> npt.NDArray[Any] | None:
        """The predictions, at the party with the labels."""
        return None if self.scores is None else self.model.answers(self.scores)


def predict_together(
    own: PartyFile,
    study: Study,
    data: Path,
    *,
    chaos: Chaos | None = None,
    say: Say = lambda text: None,
    before: Callable[[Session], None] = lambda session: None,
    beside: Callable[[Session], None] = lambda session: None,
    consent: Consent = None,
) -> Predictions:
    """Scores of new rows, from everybody's part of the model: they travel towards the party with the labels only.

    before    what else all parties do when they have met, before they know that their parts are of one run
    beside    what else they do after that
    consent   True, or a function that is handed the page that says what is sent and returns whether this party agrees.
              Not needed where the party agreed to a page of this version of the study before.
    """
    if study.split != "features":
        raise InvalidInput("split by samples, every party has the whole model, and predicts alone.")
    model, table = _model(own), read_new(own, study, data, labelled=False)
    assert isinstance(model, LinearModel)
    _refuse_others(own, study, model, table, data)
    require_for_study(own, study, lambda: disclosure(study, own.party, read_own(own, study)), consent)

    def work(session: Session) -> Predictions:
        before(session)
        runs = session.all_gather(model.run or "", "runs", str)
        refuse_other_runs(study.names, runs, _name_of(own))
        beside(session)
        here = matched(session, table)
        scores = _at_the_labels(session, model, here)
        session.all_gather(True, "written", bool)
        return Predictions(model, here, scores)

    return in_session(own, study, "predict", work, say, chaos)


def evaluate_together(
    own: PartyFile,
    study: Study,
    data: Path | None = None,
    *,
    chaos: Chaos | None = None,
    say: Say = lambda text: None,
    consent: Consent = None,
) -> Evaluation | None:
    """How well the study's model predicts the rows that the parties held out, `test` in party.toml, or other files.

    Split by features, None but at the party with the labels. A party without such rows takes part without any.

    consent   True, or a function that is handed the page that says what is sent and returns whether this party agrees.
              Not needed where the party agreed to the same page before.
    """
    check_problem(study.make_problem())
    model = _model(own)
    asked = Evaluate(model, study.split, _name_of(own))
    table = read_test(own, study, data, model)

    def page() -> str:
        return disclosure(study, own.party, read_own(own, study))

    return Part(own, study, chaos, say).take(asked, table, page, consent)


def _name_of(own: PartyFile) -> str:
    """What a party calls the file with its part of the model."""
    return f"{own.output.name}/model.npz"


def _model(own: PartyFile) -> Any:
    path = own.output / "model.npz"
    if not path.is_file():
        raise InvalidInput(f"{path} does not exist: fit the study first, with `coterie agent`.")
    return load_model(path)


def _refuse_others(own: PartyFile, study: Study, model: Any, table: Table, data: Path) -> None:
    """Refuse other columns than the model's, and an offset where it has none, or none where it has one."""
    if table.n and (study.split == "samples" or own.target is not None):
        check_offset(model.problem, table.offset is not None)
    if table.d != model.coef_.shape[-1]:
        raise InvalidData(f"the model has {model.coef_.shape[-1]} columns here, but {data} has {table.d}.")


def _at_the_labels(session: Session, model: Any, here: Table) -> FloatArray | None:
    """The scores of these rows, at the party that names a target."""
    return parts_summed(session, raw_scores(model, here) + model.intercept_, here.n)


def parts_summed(session: Session, mine: FloatArray, rows: int) -> FloatArray | None:
    """The sum of everybody's numbers about so many rows, at the party that names a target."""
    own = session.own
    holders = session.all_gather(own.target is not None, "labels", bool)
    if sum(holders) != 1:
        raise InvalidInput(f"{sum(holders)} parties name a target; exactly one must: it gets the predictions.")
    if holders[session.me] != (own.target is not None):
        raise ProtocolError("the message about labels was changed on its way.")
    refuse_unequal_rows(session.study.names, session.all_gather(rows, "rows", int))
    return _summed(session, mine, holders.index(True))


def _summed(session: Session, mine: FloatArray, holder: int) -> FloatArray | None:
    """The sum of everybody's numbers at one party, up the spanning tree that has its root there."""
    network, links, me = session.network, session.links, session.me
    tag = Tag("prediction", 0, "scores")
    if network.server:
        # All send to the process of agent 0, which may have to pass the sum on.
        below, above = ([*range(1, network.agents)], holder) if me == 0 else ([], 0)
    else:
        parents = network.tree(holder).parents.tolist()
        below, above = [j for j, parent in enumerate(parents) if parent == me], parents[me]
    total = _finite(np.array(mine), f"party {session.own.party!r}", InvalidData)
    for child in below:
        total = _finite(total + _scores(session, child, tag, total.shape), session.study.names[child], ProtocolError)
    passed_on = me != holder or (network.server and me != 0)
    if passed_on:
        links.send(above, total, tag)
    if me != holder:
        return None
    return _scores(session, 0, tag, total.shape) if passed_on else total


def _scores(session: Session, source: int, tag: Tag, shape: tuple[int, ...]) -> FloatArray:
    """A neighbour's numbers: one for each row, all of them finite."""
    name, heard = session.study.names[source], session.links.receive(source, tag)
    if heard.shape != shape or heard.dtype.kind != "f":
        sent = f"{heard.dtype} of shape {heard.shape}"
        raise ProtocolError(f"{name} sent {sent}; numbers of shape {shape} are expected. Nothing is written.")
    return _finite(heard, name, ProtocolError)


def _finite(scores: FloatArray, who: str, error: type[CoterieError]) -> FloatArray:
    if wrong := int(np.count_nonzero(~np.isfinite(scores))):
        raise error(f"{who}: {wrong} of {scores.size} scores are not finite numbers. Nothing is written.")
    return scores
