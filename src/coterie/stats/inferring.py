"""Standard errors of a fitted model: one text for one process, workers, and organisations.

    number the clusters ─→ introduce all agents ─→ two sums at the fitted model ─→ the table, the
    same for all

Keyed hashes of the labels find the clusters with rows at several parties. The key is new each time
(as where ids are matched, see `align`). A cluster's number shows which party named it first, and in
which order.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.api.inference import Inference
from coterie.api.result import Result
from coterie.data import Table
from coterie.errors import InvalidData
from coterie.numerics.arrays import FloatArray
from coterie.numerics.losses import Fit
from coterie.problems.models import Model
from coterie.problems.problem import AnyProblem, Problem
from coterie.run.agent import SummaryStatistics
from coterie.run.collectives import Protocol
from coterie.run.disclosure import TOTALS, discloses
from coterie.run.finish import agent_at, introduced_again
from coterie.run.groups import small
from coterie.run.parties import Hosted, Operation, Parties, hosted
from coterie.run.site import Site
from coterie.stats.information import Asking, add_information, numbers_of_adjustment
from coterie.stats.rereading import participants_of, reading_again
from coterie.stats.standard_errors import (
    FEW,
    Question,
    Received,
    check_clusters,
    check_problem,
    count_coefficients,
    refuse_few_clusters,
    summarised,
)

__all__ = ["Infer", "Question", "check_clusters", "infer", "ready_to_infer"]

HASH_BYTES = 16
Indices = npt.NDArray[np.intp]


# -- queries and protocols -------------------------------------------------------------------------


@discloses("random numbers, of which a key for clusters is made", splits=("samples",))
def key_for_clusters(site: Site) -> bytes:
    """This party's share of a key."""
    return secrets.token_bytes(32)


@discloses(
    "keyed hashes of your clusters, in their order: parties can test guesses", splits=("samples",)
)
def hashed_clusters(key: bytes, site: Site) -> list[bytes]:
    """The hash of each cluster of this party, in their order."""
    labels, _ = _own_clusters(site)
    return [_hashed(key, label) for label in labels.tolist()]


@discloses(
    "whether a cluster that others have, too, has fewer of your rows than minimum-count",
    splits=("samples",),
)
def has_small_clusters(numbers: Sequence[Indices], shared: tuple[int, ...], site: Site) -> bool:
    """Whether a sum would cover few rows of this party: of a cluster that others have, too, or of
    all other clusters.

    Of a cluster at two parties, each can subtract its own part of the sum. The sum over all rows
    without these clusters covers the rows of all other clusters.
    """
    own = _cluster_of_rows(numbers, site)
    in_shared = np.isin(own, shared)
    rest = 0
    if shared:
        rest = int((~in_shared).sum())
    rows_of_shared = np.bincount(own[in_shared], minlength=1).tolist()
    groups = [*rows_of_shared, rest]
    return bool(small(groups, site.rules.minimum).any())


@discloses("whether your budget allows a better correction of few clusters", splits=("samples",))
def allows_numbers(numbers: int, site: Site) -> bool:
    """Whether this party's budget allows for that many more numbers."""
    return bool(numbers <= site.rules.allowance)


_LEARNED = "weighted sums of products of your rows; with few rows, your rows and labels"


def numbers_of_sums(problem: AnyProblem, columns: int, matrices: int) -> int:
    """Numbers in both sums, with that many matrices, where no cluster is at several parties."""
    outputs = max(int(problem.outputs), 1)
    width = (columns + problem.intercept) * max(outputs - 1, 1)
    triangle = width * (width + 1) // 2
    return matrices * triangle + width + 6 + outputs


def matrices_of(kind: str) -> int:
    """Number of matrices that parties sum for that kind of standard errors."""
    if kind == "model":
        return 1
    return 2


@discloses(
    "the Hessian of your rows, their gradient, the length of a Newton step, and how many of your "
    "rows have an event or a class, and weights",
    _LEARNED,
    TOTALS,
    splits=("samples",),
    most=lambda case: (2, numbers_of_sums(case.problem, case.columns, matrices_of("model"))),
)
def sums_for_model(
    problem: AnyProblem,
    model: Model[Problem[Fit]],
    statistics: SummaryStatistics,
    asking: Asking,
    site: Site,
) -> Protocol[FloatArray]:
    """The sums for model-based errors."""
    return (yield from _summed(problem, model, statistics, asking, site))


@discloses(
    "the Hessian of your rows, products of their scores, their gradient, the length of a Newton "
    "step, and how many of your rows have an event or a class, and weights",
    _LEARNED,
    TOTALS,
    splits=("samples",),
    most=lambda case: (2, numbers_of_sums(case.problem, case.columns, matrices_of("robust"))),
)
def sums_for_robust(
    problem: AnyProblem,
    model: Model[Problem[Fit]],
    statistics: SummaryStatistics,
    asking: Asking,
    site: Site,
) -> Protocol[FloatArray]:
    """The sums for robust errors."""
    return (yield from _summed(problem, model, statistics, asking, site))


@discloses(
    "the Hessian of your rows, products of the scores of your clusters, the scores of clusters at "
    "several parties, and how many of your rows have an event or a class, and weights",
    _LEARNED,
    TOTALS,
    splits=("samples",),
    unbounded=(
        "for each cluster at several parties you send one number per coefficient, and these "
        "clusters are counted when the parties meet"
    ),
)
@discloses(
    'with fewer than 30 clusters, each at one party, or correction = "CR2": for each coefficient '
    "a matrix of products of your clusters' Hessians, added up over clusters",
    "of a single cluster, a function of its Hessian",
    TOTALS,
    splits=("samples",),
    applies=lambda case: case.correction in ("", "CR2"),
)
def sums_for_clustered(
    problem: AnyProblem,
    model: Model[Problem[Fit]],
    statistics: SummaryStatistics,
    asking: Asking,
    numbers: Sequence[Indices],
    site: Site,
) -> Protocol[FloatArray]:
    """The sums for clustered errors."""
    asking = replace(asking, clusters=_cluster_of_rows(numbers, site))
    return (yield from _summed(problem, model, statistics, asking, site))


SUMS: dict[str, Any] = {
    "model": sums_for_model,
    "robust": sums_for_robust,
    "clustered": sums_for_clustered,
}
"""The protocol of each kind of standard errors."""
QUERIES: tuple[Any, ...] = (key_for_clusters, hashed_clusters, has_small_clusters, allows_numbers)
"""The queries about clusters."""


def _summed(
    problem: AnyProblem,
    model: Model[Problem[Fit]],
    statistics: SummaryStatistics,
    asking: Asking,
    site: Site,
) -> Protocol[FloatArray]:
    agent = agent_at(site, problem, "samples", statistics=statistics)
    (point,) = problem.kind.models.points(model, [agent], None)
    w = agent.lowered(point.w).astype(float)
    return (yield from add_information(agent, w, asking))


def _own_clusters(site: Site) -> tuple[npt.NDArray[Any], Indices]:
    """The labels of this party's clusters, and the cluster of each row."""
    assert site.data.ids is not None
    labels, place = np.unique(site.data.ids, return_inverse=True)
    return labels, place


def _cluster_of_rows(numbers: Sequence[Indices], site: Site) -> Indices:
    """The number of the cluster of each row of this party."""
    _, place = _own_clusters(site)
    return numbers[site.index][place]


def _hashed(key: bytes, label: str | int) -> bytes:
    text = f"{type(label).__name__} {label}"
    return hmac.digest(key, text.encode(), "sha256")[:HASH_BYTES]


# -- the operation ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clusters:
    """The clusters of all parties, as numbers from 0."""

    numbers: tuple[Indices, ...] = ()
    """For each party, the number of each of its clusters, in the order of their labels."""
    shared: tuple[int, ...] = ()
    """The clusters with rows at several parties."""
    count: int = 0

    @staticmethod
    def of(hashes: Sequence[Sequence[bytes]]) -> Clusters:
        """Number the hashes of all parties in the order of their first appearance."""
        known: dict[bytes, int] = {}
        numbers = []
        for of_party in hashes:
            own = [known.setdefault(one, len(known)) for one in of_party]
            numbers.append(np.array(own, np.intp))
        found, times = np.unique(np.concatenate(numbers), return_counts=True)
        shared = tuple(found[times > 1].tolist())
        return Clusters(tuple(numbers), shared, len(known))


@dataclass(frozen=True)
class Infer(Operation[Inference]):
    """Standard errors, tests and intervals of the coefficients of a model that the parties
    fitted.
    """

    name: ClassVar[str] = "inference"
    file: ClassVar[str] = "inference"
    splits: ClassVar[tuple[str, ...]] = ("samples",)
    discloses: ClassVar[tuple[Callable[..., Any], ...]] = (
        *QUERIES,
        introduced_again,
        *SUMS.values(),
    )

    asked: Question
    model: Model[Problem[Fit]]
    tolerance: float
    """The tolerance of the fit."""
    pooled: bool = False
    """Whether the parties hold parts of one table, so that sums over a cluster disclose nothing to
    another owner.
    """
    among: bool = False
    """Whether the parties are organisations."""

    def together(self, parties: Parties) -> Inference:
        asked, received = self.added_up(parties)
        found = summarised(self.model, self.tolerance, asked, received)
        return replace(found, bill=parties.bill)

    def added_up(self, parties: Parties) -> tuple[Question, Received]:
        """The question with the correction that the clusters allow, and the sums of all parties."""
        problem = self.model.problem
        clusters = Clusters()
        if self.asked.kind == "clustered":
            clusters = self._clusters(parties)
        adjustable = self._is_adjustable(parties, clusters)
        asked = self.asked.settled(problem, clusters.count, adjustable)
        asking = asked.asking(self.model, clusters.shared)
        statistics = parties.run_protocol(partial(introduced_again, problem, "samples"), "setup")
        assert statistics is not None
        known = [problem, self.model, statistics, asking]
        if asked.kind == "clustered":
            known.append(clusters.numbers)
        sums = parties.run_protocol(partial(SUMS[asked.kind], *known))
        assert sums is not None
        received = Received(asking, sums, statistics, len(parties.cards), clusters.count)
        return asked, received

    def _clusters(self, parties: Parties) -> Clusters:
        shares = parties.ask(key_for_clusters, bytes)
        key = hashlib.sha256(b"".join(shares)).digest()
        hashes = parties.ask(partial(hashed_clusters, key), list[bytes])
        clusters = Clusters.of(hashes)
        query = partial(has_small_clusters, clusters.numbers, clusters.shared)
        received = parties.ask(query, bool)
        against = [name for name, few in zip(parties.names, received, strict=True) if few]
        if against:
            raise InvalidData(
                f"clusters have rows at several parties, and {' and '.join(against)} would have "
                'to send a sum over fewer rows than minimum-count. Use inference = "robust" in '
                "the study; or, if equal labels mean different clusters at the parties, make the "
                "labels differ."
            )
        refuse_few_clusters(self.model, clusters.count)
        if self.among and self.asked.correction == "CR2" and clusters.shared:
            raise InvalidData(
                'correction = "CR2" needs each cluster within one party, but '
                f"{len(clusters.shared)} of {clusters.count} clusters have rows at several. Write "
                'correction = "CR1" into the study.'
            )
        return clusters

    def _is_adjustable(self, parties: Parties, clusters: Clusters) -> bool:
        """Whether the parties can send the sums that CR2 needs of each cluster."""
        if clusters.shared:
            return self.pooled
        few = 0 < clusters.count < FEW
        if not few or self.asked.correction is not None:
            return True
        numbers = numbers_of_adjustment(count_coefficients(self.model))
        answers = parties.ask(partial(allows_numbers, numbers), bool)
        return all(answers)


# -- of a result -----------------------------------------------------------------------------------


def infer(result: Result, asked: Question, clusters: Any, data: Any) -> Inference:
    """Standard errors of a result, from the parties that fitted it, or from its data."""
    certificate = result.certificate
    check_problem(result.model.problem, certificate.settings["split"], asked.kind)
    if data is not None:
        found = _of_data(result, asked, clusters, data)
    elif result.parties is not None:
        found = _of_parties(result, result.parties, asked, clusters)
    else:
        raise InvalidData(
            "a result from a file, or of a study between organisations, has no data. Give data=, "
            "in the form in which it was fitted."
        )
    for text in found.warnings:
        warnings.warn(text, UserWarning, stacklevel=3)
    return found


def _of_parties(result: Result, parties: Hosted, asked: Question, clusters: Any) -> Inference:
    tolerance = result.certificate.tolerance
    with parties.engine.held():
        operation, parties = ready_to_infer(parties, result.model, tolerance, asked, clusters)
        return operation.together(parties)


def _of_data(result: Result, asked: Question, clusters: Any, data: Any) -> Inference:
    """Standard errors from the data of a result; other data is refused."""
    certificate = result.certificate
    model = result.model
    again, meeting = reading_again(certificate, model, model.problem, data)
    fitted = [participant.digest for participant in certificate.participants]
    with hosted(again, data, meeting) as parties:
        parties = again.together(parties).parties
        given: list[str | None] = []
        for participant in participants_of(parties):
            if participant is None:
                given.append(None)
            else:
                given.append(participant.digest)
        if given != fitted:
            raise InvalidData(
                "this is not the data that the model was fitted to: its digest differs."
            )
        return _of_parties(result, parties, asked, clusters)


def ready_to_infer(
    parties: Hosted, model: Model[Problem[Fit]], tolerance: float, asked: Question, clusters: Any
) -> tuple[Infer, Hosted]:
    """The operation, and the parties with the cluster of each of their rows. `clusters` has those
    of all rows.
    """
    places = [place for place in parties.look(rows_held) if place is not None]
    pooled = all(rows is not None for rows, _ in places)
    operation = Infer(asked, model, tolerance, pooled=pooled)
    parties = parties.again(operation)
    if clusters is not None:
        of_parties = _by_party(clusters, places)
        parties = parties.map(partial(_with_clusters, of_parties))
    return operation, parties


def rows_held(site: Site) -> tuple[Indices | None, int]:
    """The places of this party's rows in a table that was split, if it was; and their number."""
    return site.data.rows, site.data.n


def _with_clusters(of_parties: Sequence[Indices], site: Site) -> Table:
    return replace(site.data, ids=of_parties[site.index])


def _by_party(clusters: Any, places: Sequence[tuple[Indices | None, int]]) -> list[Indices]:
    """The clusters of the rows of every party, as numbers."""
    sizes = [n for _, n in places]
    parts = _parts(clusters, places)
    found = [len(own) for own in parts]
    if found != sizes:
        raise InvalidData(f"clusters has {found} rows a party, but the parties have {sizes}.")
    everything = np.concatenate(parts)
    if everything.dtype.kind == "f" and not np.isfinite(everything).all():
        raise InvalidData(
            "some rows have no cluster. Give each row one, or leave those rows out of the fit."
        )
    numbers = np.unique(everything, return_inverse=True)[1]
    return np.split(numbers, np.cumsum(sizes)[:-1])


def _parts(clusters: Any, places: Sequence[tuple[Indices | None, int]]) -> list[npt.NDArray[Any]]:
    """The clusters as they were given, for each party."""
    sizes = [n for _, n in places]
    by_party = isinstance(clusters, list) and len(clusters) == len(places)
    if by_party and all(np.ndim(own) == 1 for own in clusters):
        return [np.asarray(own) for own in clusters]
    total = sum(sizes)
    whole = np.asarray(clusters)
    if whole.shape != (total,):
        raise InvalidData(
            f"clusters has shape {whole.shape}; give the cluster of each of the {total} rows."
        )
    blocks = np.split(whole, np.cumsum(sizes)[:-1])
    parts = []
    for (rows, _), block in zip(places, blocks, strict=True):
        if rows is None:
            parts.append(block)
        else:
            parts.append(whole[rows])
    return parts
