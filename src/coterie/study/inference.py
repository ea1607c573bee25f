"""Standard errors between organisations: one more round of sums at the fitted model, the same numbers at all parties.

Clusters that have rows at several parties are found by keyed hashes of their labels, with a key that is new for every
run (as ids are matched, see `align`). A cluster's number says which party named it first, and in which order.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.api.comparison import Compared, compare_inference
from coterie.api.inference import Inference
from coterie.api.result import Result
from coterie.data import Table
from coterie.errors import CoterieError, InvalidData
from coterie.networks import star
from coterie.numerics.arrays import digest
from coterie.run.agent import Agent, Facts
from coterie.run.bill import Bill
from coterie.run.certificate import Bound, Certificate, Point
from coterie.run.groups import small
from coterie.run.rounds import Outcome, run
from coterie.run.settings import Limits
from coterie.run.statuses import Status
from coterie.stats.information import numbers_of_adjustment
from coterie.stats.standard_errors import (
    FEW,
    Question,
    clusters_at_several,
    count_coefficients,
    questions_of,
    refuse_few_clusters,
    summarised,
)
from coterie.study.broadcasts import CLUSTER_KEYS, CLUSTERS, ROOM, ROWS_OF_CLUSTERS
from coterie.study.fits import Fits
from coterie.study.session import Session, check_totals
from coterie.study.study import PartyFile

HASH_BYTES = 16


def infer_together(fits: Fits, result: Result, agent: Agent) -> tuple[Inference, str]:
    """Standard errors of the fitted model, and a digest of the sums that they come from."""
    session, study = fits.session, fits.session.study
    assert study.inference is not None
    asked = Question.of(study.inference, study.weights, study.correction)
    mine, shared, count = _clusters(session, fits.table) if asked.kind == "clustered" else (None, (), 0)
    if mine is not None:
        refuse_few_clusters(result.model, count)
    if asked.correction == "CR2" and shared:
        raise InvalidData(
            f'correction = "CR2" needs each cluster within one party, but {len(shared)} of {count} clusters have rows '
            'at several. Write correction = "CR1" into the study.'
        )
    local = not shared
    if mine is not None and local and count < FEW and asked.correction is None:
        local = _have_room(fits, numbers_of_adjustment(count_coefficients(result.model)))
    asked = asked.settled(result.model.problem, count, local)
    asking = asked.information(result.model, mine, shared)
    warm = result.model.problem.kind.models.points(result.model, [agent], None)
    transport = fits.transport()
    limits = Limits(tol=result.certificate.tolerance, max_rounds=1)
    outcome = run([agent], asking, transport, limits, warm=warm)
    if outcome.error is not None:
        raise outcome.error
    check_totals(session, transport)
    heard = outcome.points[0].kept
    assert heard is not None
    return summarised(result.model, result.certificate.tolerance, asked, asking, outcome, count), digest(heard)


def check_table(own: PartyFile, certificate: Certificate, model: Any, facts: Facts, found: Compared) -> list[str]:
    """What is wrong with this party's stored standard errors, computed again from the sums that all parties signed."""
    settings, file = certificate.settings.get("inference"), own.output / "inference.json"
    if settings is None:
        return ["it has an inference.json that its certificate does not name"] if file.is_file() else []
    try:
        written = Inference.load(file)
    except CoterieError:
        return ["its inference.json is not there, or cannot be read"]
    if written.sums is None or digest(written.sums) != settings["sums"]:
        return ["its inference.json comes of other sums than its certificate names"]
    said = {"kind": written.kind, "weights": written.weights, "correction": written.correction}
    if said != {name: settings[name] for name in said}:
        return ["its inference.json has standard errors of another kind than its certificate"]
    network, nothing = star(len(certificate.participants)), Bound(math.nan, math.nan)
    point = Point(np.empty(0), kept=written.sums)
    outcome = Outcome(Status.OPTIMAL, [point], nothing, facts, Bill(network))
    shared, compared = tuple(range(settings["shared"])), Compared()
    for asked in questions_of(written):
        asking, compared = asked.information(model, None, shared), Compared()
        table = summarised(model, certificate.tolerance, asked, asking, outcome, settings["clusters"])
        compare_inference(compared, written, table)
        if not compared.objections:
            break
    found.compared += compared.compared
    return [f"its {text}" for text in compared.objections]


def _have_room(fits: Fits, numbers: int) -> bool:
    """Whether the budgets of all parties leave room for that many numbers."""
    mine = bool(fits.account.told + numbers <= fits.account.allowance)
    return all(fits.session.all_gather(mine, ROOM, bool))


def _clusters(session: Session, table: Table) -> tuple[tuple[npt.NDArray[np.intp], ...], tuple[int, ...], int]:
    """The cluster of every row that is here, which clusters several parties have, and how many there are."""
    assert table.ids is not None
    labels, place = np.unique(table.ids, return_inverse=True)
    nonces = session.all_gather(secrets.token_bytes(32), CLUSTER_KEYS, bytes)
    key = hashlib.sha256(b"".join(nonces)).digest()
    told = session.all_gather([_hashed(key, label) for label in labels.tolist()], CLUSTERS, list[bytes])
    known: dict[bytes, int] = {}
    numbers = [np.array([known.setdefault(one, len(known)) for one in own], np.intp) for own in told]
    here = tuple(own[place] if party == session.me else own[:0] for party, own in enumerate(numbers))
    shared = clusters_at_several(numbers)
    _refuse_few_rows(session, here[session.me], shared)
    return here, shared, len(known)


def _refuse_few_rows(session: Session, mine: npt.NDArray[np.intp], shared: tuple[int, ...]) -> None:
    """Refuse sums over few rows of a party: of a cluster that others have, too, or of all the others that it has.

    Of a cluster at two parties, each can subtract its own part of the sum. What is left of the sum over all rows,
    without these clusters, is about the rows of all the other clusters.
    """
    told = np.isin(mine, shared)
    groups = [*np.bincount(mine[told], minlength=1).tolist(), int((~told).sum()) if shared else 0]
    refused = bool(small(groups, session.own.policy.minimum_count).any())
    heard = session.all_gather(refused, ROWS_OF_CLUSTERS, bool)
    if against := [name for name, one in zip(session.study.names, heard, strict=True) if one]:
        raise InvalidData(
            f"clusters have rows at several parties, and {' and '.join(against)} would have to tell a sum over fewer "
            'rows than minimum-count. Use inference = "robust" in the study; or, if equal labels mean different '
            "clusters at the parties, make the labels differ."
        )


def _hashed(key: bytes, label: str | int) -> bytes:
    return hmac.digest(key, f"{type(label).__name__} {label}".encode(), "sha256")[:HASH_BYTES]
