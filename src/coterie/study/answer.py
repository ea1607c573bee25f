"""The answer of a study at one party: a result, its path, standard errors. All parties sign it, and
each writes its part to files.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

from coterie.api.inference import Inference
from coterie.api.path import Path
from coterie.api.replacing import remove_path
from coterie.api.result import Result
from coterie.api.stored import bill_as_stored
from coterie.data.archives import staged, write_atomically
from coterie.errors import CoterieError, InvalidData, PartyLost
from coterie.numerics.arrays import digest
from coterie.run.bill import Cost
from coterie.run.certificate import Certificate
from coterie.stats.choosing import Choice
from coterie.study.broadcasts import DIGEST, PARTS
from coterie.study.session import Session
from coterie.study.signatures import with_signatures

BILL, CHOICE, INFERENCE, PATH = "bill.json", "choice.json", "inference.json", "path"
FAILURE = "last-failure.json"
"""The reason why the last run ended without a result; the next result removes the file."""


@dataclass(frozen=True)
class Answer:
    """This party's part of the study's answer."""

    result: Result
    path: Path | None = None
    inference: Inference | None = None
    choice: Choice | None = None
    choosing: Cost | None = None
    """The communication cost of the choice."""
    refusal: InvalidData | None = None
    """The reason why there are no standard errors, if the study asks for them."""

    def with_parts(self, session: Session) -> Answer:
        """The answer with the digests of all parties' parts in every certificate."""
        if self.path is not None:
            return self._of_path([_with_parts(session, one, {}) for one in self.path.results])
        more: dict[str, Any] = {}
        if self.inference is not None:
            found = self.inference
            assert found.sums is not None
            more["inference"] = {
                "kind": found.kind,
                "weights": found.weights,
                "correction": found.correction,
                "clusters": found.clusters,
                "shared": found.clusters_shared,
                "sums": digest(found.sums),
            }
        return replace(self, result=_with_parts(session, self.result, more))

    def signed(self, session: Session) -> tuple[Answer, dict[str, str]]:
        """The answer with the signatures that arrive; and for each party without one, the
        reason.
        """
        reasons: dict[str, str] = {}
        signed = []
        for result in self.results:
            certificate, missing = with_signatures(session, result.certificate)
            signed.append(replace(result, certificate=certificate))
            reasons |= missing
        if self.path is not None:
            return self._of_path(signed), reasons
        return replace(self, result=signed[0]), reasons

    @property
    def results(self) -> list[Result]:
        """All results with a certificate: those of a path, or the only one."""
        if self.path is not None:
            return list(self.path.results)
        return [self.result]

    def _of_path(self, results: Sequence[Result]) -> Answer:
        """The answer with these results of its path."""
        assert self.path is not None
        path = replace(self.path, results=tuple(results))
        return replace(self, path=path, result=path.chosen_result)

    def write(self) -> None:
        """Write this party's part into the folder that the result names: all files, or none."""
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
        # Files of an earlier run, or of an earlier version of the study, are about another model.
        (folder / FAILURE).unlink(missing_ok=True)
        if self.inference is None:
            (folder / INFERENCE).unlink(missing_ok=True)
        if self.choice is None:
            (folder / CHOICE).unlink(missing_ok=True)
        if self.path is None:
            remove_path(folder / PATH)


def is_of_one_run(folder: FilePath) -> bool:
    """Whether the result in that folder names the parts of all parties, which are of one run."""
    try:
        certificate = Certificate.load(folder / "certificate.json")
    except CoterieError:
        return False
    return "parts" in certificate.settings


def write_failure(folder: FilePath, error: CoterieError) -> None:
    """Note why a run ended without a result. The files of an earlier run stay."""
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


def is_signed_by_all(folder: FilePath) -> bool:
    """Whether the result in that folder has signatures of all its parties."""
    try:
        certificate = Certificate.load(folder / "certificate.json")
    except CoterieError:
        return False
    names = {participant.name for participant in certificate.participants}
    return "parts" in certificate.settings and names <= certificate.signatures.keys()


def _with_parts(session: Session, result: Result, more: dict[str, Any]) -> Result:
    """The result with a certificate that names these settings and the digest of every party's
    part.
    """
    parts = session.all_gather(result.model.digest(), PARTS, DIGEST)
    held = dict(zip(session.study.names, parts, strict=True))
    settings = {**result.certificate.settings, **more, "parts": held}
    certificate = replace(result.certificate, settings=settings)
    return replace(result, model=result.model.of_run(certificate.run), certificate=certificate)
