"""Continue without a party that is gone for good: predict with the other parts of the model, and
compare the objective.

    coterie predict party.toml new.csv --without laboratory     with the parts of the model that are
    left
    coterie agent party.toml --without laboratory               a new fit without its columns

A party's part of a model includes the share of its columns in the intercept. Without the party,
columns have their mean of the rows that were fitted; columns that are not centred (sparse ones, and
those of a model without an intercept) are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from coterie.api.result import Result
from coterie.errors import InvalidInput
from coterie.run.certificate import Certificate
from coterie.study.among import Among
from coterie.study.broadcasts import FITTED_WITHOUT
from coterie.study.consent import Consent
from coterie.study.party import read_new
from coterie.study.prediction import ObjectiveOfParts, Predictions
from coterie.study.scores import name_of_model, own_part, predict_together
from coterie.study.session import Say, Session
from coterie.study.study import PartyFile, Study


def cost_of_refit(before: Path, result: Result, gone: Sequence[str]) -> str | None:
    """The objective without their columns compared with the objective of the fit before, if its
    result is still here.
    """
    if result.error is not None or not (before / "certificate.json").is_file():
        return None
    old = Certificate.load(before / "certificate.json")
    rows = [document.participants[0].rows for document in (old, result.certificate)]
    return _compared(gone, result.certificate.primal, old.primal, rows)


def predict_without(
    own: PartyFile,
    study: Study,
    before: PartyFile,
    data: Path,
    gone: Sequence[str],
    *,
    say: Say = lambda text: None,
    consent: Consent = None,
) -> tuple[Predictions, str | None]:
    """Predict without these parties: with the model that was fitted without them, if there is one,
    or with the other parts of the old one. The party with the labels also gets the change of the
    objective, in a sentence.
    """
    fitted = (own.output / "model.npz").is_file()
    holder = own
    if not fitted:
        holder = msgspec.structs.replace(own, output=before.output)
    costs: list[str] = []

    def before_predicting(session: Session) -> None:
        if len({*session.all_gather(fitted, FITTED_WITHOUT, bool)}) > 1:
            names = " ".join(f"--without {name}" for name in gone)
            raise InvalidInput(
                "some parties have fitted again and others not: `coterie agent party.toml "
                f"{names}` at all."
            )
        if fitted:
            costs.append(_from_files(before.output, own.output, gone) or "")
            return
        objective, rows = _objective(session, holder, study)
        if objective is not None:
            old = Certificate.load(before.output / "certificate.json")
            costs.append(_compared(gone, objective, old.primal, [old.participants[0].rows, rows]))

    found = predict_together(
        holder, study, data, say=say, before=before_predicting, consent=consent
    )
    if found.scores is None or not costs:
        return found, None
    return found, costs[0] or None


def _objective(session: Session, own: PartyFile, study: Study) -> tuple[float | None, int]:
    """P of the other parts of the model, on the rows that were fitted, at the party with the
    labels; and the number of rows.
    """
    asked = ObjectiveOfParts(own_part(own), own.target, name_of_model(own))
    table = read_new(own, study, own.data, labelled=True)
    return asked.together(Among.begin(session, asked, table))


def _from_files(before: Path, after: Path, gone: Sequence[str]) -> str | None:
    old, new = (folder / "certificate.json" for folder in (before, after))
    if not (old.is_file() and new.is_file()):
        return None
    documents = [Certificate.load(old), Certificate.load(new)]
    rows = [document.participants[0].rows for document in documents]
    return _compared(gone, documents[1].primal, documents[0].primal, rows)


def _compared(gone: Sequence[str], now: float, old: float, rows: Sequence[int]) -> str:
    change = now - old
    more = "more" if change >= 0 else "less"
    share = other = ""
    if old:
        share = f" ({abs(change / old):.1%})"
    if rows[0] != rows[1]:
        other = f"; of {rows[1]} rows now and {rows[0]} then"
    return (
        f"Without {', '.join(gone)} the objective is {now:.6g}, {abs(change):.3g}{share} {more} "
        f"than the {old:.6g} with all columns{other}."
    )
