"""What a party ends with: a result, the path it was chosen from, standard errors; signed by all,
and as files.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

from coterie.api.inference import Inference
from coterie.api.path import Path
from coterie.api.result import Result
from coterie.api.stored import bill_as_stored
from coterie.data.archives import staged, write_atomically
from coterie.errors import CoterieError, InvalidData, PartyLost
from coterie.numerics.arrays import digest
from coterie.run.bill import Cost
from coterie.run.certificate import Certificate
from coterie.stats.choosing import Choice
from coterie.study.broadcasts import PARTS
from coterie.study.session import Session
from coterie.study.signatures import signed_by_all
from coterie.study.study import Study

BILL, CHOICE, INFERENCE, PATH = "bill.json", "choice.json", "inference.json", "path"
FAILURE = "last-failure.json"
"""Why the last run ended, where it left no result; removed by the next result."""


@dataclass(frozen=True)
class Answer:
    """Everything that this party has of the study's answer."""

    result: Result
    path: Path | None = None
    inference: Inference | None = None
    choice: Choice | None = None
    choosing: Cost | None = None
    """What the choice cost."""
    refusal: InvalidData | None = None
    """Why there are no standard errors, where they were asked for."""

    def signed(self, session: Session) -> Answer:
        """The same with everybody's signature under every certificate."""
        if self.path is not None:
            path = replace(
                self.path, results=tuple(_signed(session, result) for result in self.path.results)
            )
            return replace(self, path=path, result=path.chosen_result)
        told: dict[str, Any] = {}
        if self.inference is not None:
            found = self.inference
            settings = {
                "kind": found.kind,
                "weights": found.weights,
                "correction": found.correction,
            }
            clusters = {"clusters": found.clusters, "shared": found.clusters_shared}
            assert found.sums is not None
            told["inference"] = {**settings, **clusters, "sums": digest(found.sums)}
        return replace(self, result=_signed(session, self.result, told))

    def write(self) -> None:
        """This party's part of it, into the folder that the result names: all files, or none."""
        folder, content = self.result.folder, bill_as_stored(self.result.bill)
        assert folder is not None, "the place was chosen"
        if self.path is not None:
            content["path"] = {
                "total": vars(self.path.total),
                "validation": vars(self.path.validation),
            }
            self.path.save(folder / PATH)
        if self.choosing is not None:
            content["choice"] = vars(self.choosing)
        if self.inference is not None and self.inference.bill is not None:
            content["inference"] = bill_as_stored(self.inference.bill)
        with staged(folder) as new:
            self.result.save(new)
            if self.inference is not None:
                self.inference.save(new / INFERENCE)
            if self.choice is not None:
                write_atomically(new / CHOICE, json.dumps(self.choice.told(), indent=1).encode())
            write_atomically(new / BILL, json.dumps(content, indent=1).encode())
        # What an earlier run, or an earlier version of the study, left there is not about this
        # model.
        (folder / FAILURE).unlink(missing_ok=True)
        if self.inference is None:
            (folder / INFERENCE).unlink(missing_ok=True)
        if self.choice is None:
            (folder / CHOICE).unlink(missing_ok=True)
        if self.path is None:
            shutil.rmtree(folder / PATH, ignore_errors=True)


def run_in(folder: FilePath) -> str:
    """The digest of the run whose result is in that folder; empty if there is none that all parties
    signed.
    """
    try:
        certificate = Certificate.load(folder / "certificate.json")
    except CoterieError:
        return ""
    return certificate.run if "parts" in certificate.settings else ""


def write_failure(folder: FilePath, error: CoterieError) -> None:
    """Note why a run ended without a result, next to what an earlier run left in the folder, which
    stays.
    """
    if not folder.is_dir():
        return
    party = error.party if isinstance(error, PartyLost) else ""
    status = error.status
    content = {
        "status": status,
        "exit_code": status.exit_code,
        "reason": str(error),
        "lost_party": party or None,
    }
    with contextlib.suppress(OSError):
        write_atomically(folder / FAILURE, json.dumps(content, indent=1).encode())


def _signed(session: Session, result: Result, told: dict[str, Any] | None = None) -> Result:
    parts = session.all_gather(result.model.digest(), PARTS, str)
    certificate = _with_parts(result.certificate, session.study, parts, told or {})
    model = result.model.of_run(certificate.run)
    return replace(result, model=model, certificate=signed_by_all(session, certificate))


def _with_parts(
    certificate: Certificate, study: Study, parts: list[str], told: dict[str, Any]
) -> Certificate:
    """The certificate, naming what every party holds of the model that it is about."""
    held = dict(zip(study.names, parts, strict=True))
    return replace(certificate, settings={**certificate.settings, **told, "parts": held})
