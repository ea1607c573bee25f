"""Check a certificate again, from the model and the data, trusting none of its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coterie.api.comparison import (
    Compared,
    compare,
    compare_model,
    compare_run,
    compare_table,
    plain,
    refusing_other_errors,
)
from coterie.api.inference import Inference
from coterie.api.result import Result
from coterie.choices import CORRECTIONS
from coterie.data import Table
from coterie.data.preparation.prepared import Prepared
from coterie.errors import (
    CorruptFile,
    CoterieError,
    InvalidData,
    InvalidInput,
    NumericalError,
)
from coterie.networks import star
from coterie.numerics.threads import cores
from coterie.problems import points_of
from coterie.problems.models import AnyModel
from coterie.problems.problem import AnyProblem
from coterie.run.agent import SummaryStatistics, numbers_held
from coterie.run.bill import Bill
from coterie.run.certificate import Bound, Certificate, Participant, participants, sentence
from coterie.run.certificate.bound import lower_bound
from coterie.run.finish import proven_again
from coterie.run.parties import met_here
from coterie.run.setup import check_offset, make_agents
from coterie.run.tables import attach_offset, gather_prepared, prepare_tables
from coterie.stats.inferring import certified_tables, ready_to_infer
from coterie.stats.preparing import follows_from
from coterie.stats.standard_errors import STATA, check_problem, questions_of
from coterie.transport.in_process import InProcess

MACHINES = 1e-12
"""Which share of the unit another machine may round a dual into its domain by."""
AGREEMENT = 1e-9
"""How closely recomputed numbers must agree with the written ones, relative to themselves."""
NEAR, ALIKE = 1e-6, 4.0
"""How closely two honest bounds on the rounding of a primal agree, and by how much more if
residuals are rounding.
"""


@dataclass(frozen=True)
class Verification:
    """The outcome: `objections` is empty if everything holds. All numbers are those computed
    here.
    """

    objections: tuple[str, ...]
    primal: float = math.nan
    dual: float = math.nan
    gap: float = math.nan
    relative_gap: float = math.nan
    radius: float | None = None
    rounding: float = math.nan
    """How much of the gap only allows for rounding."""
    about: str = ""
    """Which problem it is that was computed: loss, penalty, intercept, and the size of the data."""
    proves: str = ""
    """What the numbers found here mean."""
    compared: tuple[str, ...] = ()
    """What was compared with the data, beside the numbers."""
    unchecked: tuple[str, ...] = ()
    """What nobody can see from the data, and no proof rests on."""
    signed_by: tuple[str, ...] = ()
    """Between organisations: whose signatures under the certificate were checked."""

    @property
    def holds(self) -> bool:
        """Whether the certificate is right."""
        return not self.objections

    @staticmethod
    def of(
        objections: Sequence[str],
        certificate: Certificate,
        bound: Bound,
        statistics: SummaryStatistics,
        about: str,
    ) -> Verification:
        """What was found, and in words what it proves, if there are no objections."""
        relative = bound.gap / statistics.gap_unit
        proves = sentence(bound.primal, bound.gap, relative, bound.radius, certificate.settings)
        return Verification(
            tuple(objections),
            bound.primal,
            bound.dual,
            bound.gap,
            relative,
            bound.radius,
            rounding_of(bound, statistics),
            about,
            "" if objections else proves,
        )


def verify(
    certificate: Certificate,
    model: AnyModel,
    data: Any,
    *,
    offset: Any = None,
    same_order: bool = False,
    result: Result | None = None,
    inference: Inference | None = None,
    clusters: Any = None,
) -> Verification:
    """Recompute primal, dual and gap from `data`, and `offset` if it had one (in the form in which
    they were fitted), and compare everything.

    Names are compared with the data, too: classes, columns, users and parties. Columns are found by
    their names, in whatever order they are now. That the stated method and seed were really used
    cannot be seen from data and model, and the proof does not rest on it (`unchecked`). The digests
    of the certificate say which rows each party had, in which order: rows that are paired otherwise
    are refused. `same_order` is accepted as in `solve`, and changes nothing.
    """
    if "parts" in certificate.settings:
        raise InvalidInput(
            "this certificate comes from a study between organisations, and each party holds a "
            "part of the proof: run "
            "`coterie verify party.toml` at every party."
        )
    try:
        prepared = getattr(model, "preparation", None)
        with cores(None):
            placed = attach_offset(data, offset, certificate.settings["split"], prepared)
            return _verify(certificate, model, placed, Stored(result, inference, clusters))
    except (
        KeyError,
        IndexError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        NumericalError,
    ) as error:
        if isinstance(error, CoterieError) and not isinstance(error, NumericalError):
            raise
        raise CorruptFile(
            f"the certificate lacks what a proof needs ({type(error).__name__}: {error})."
        ) from error


@dataclass(frozen=True)
class Stored:
    """What a folder has besides the model and the certificate, where it was given."""

    result: Result | None
    inference: Inference | None
    clusters: Any
    """The clusters of the rows, for clustered standard errors."""


def _verify(certificate: Certificate, model: AnyModel, data: Any, stored: Stored) -> Verification:
    settings = certificate.settings
    split = settings["split"]
    family = model.problem.kind
    problem = family.models.problem_of(model, settings["problem"])
    prepared, in_pieces = model.preparation, isinstance(data, list)
    try:
        tables = certified_tables(certificate, model, data)
    except InvalidInput:
        _refuse_other_size(certificate, model, data)
        raise
    tables, classes = prepare_tables(tables, problem, split, tensors=True)
    check_offset(problem, any(table.offset is not None for table in tables))
    network = star(len(tables), server=True)
    secure = settings.get("secure_sums") is True
    held = participants(make_agents(tables, problem, split, network, 0, secure))
    found = compare(certificate, model, tables, classes, held, in_pieces)
    if model.digest() != certificate.model_digest:
        found.objections.append("the model is not the model that was certified")
    if (part := getattr(model, "part", None)) is not None:
        found.objections.append(f"the model is a part: that of {part}")
    if getattr(model, "run", None) is not None:
        found.objections.append("the model names a run of parts, but it is whole")
    _compare_preparation(found, settings.get("prepare"), prepared, data, split)
    if found.objections:
        return Verification(tuple(found.objections))

    agents = make_agents(
        tables, problem, split, family.models.proof_network(model, network), 0, secure
    )
    try:
        points = points_of(model, agents, certificate.witness)
    except InvalidInput as error:
        raise CorruptFile(f"the certificate proves nothing: {error}") from error
    compare_model(found, certificate, model, agents)
    if stored.result is not None:
        compare_run(found, stored.result, certificate)
    if stored.inference is not None:
        _compare_inference(found, certificate, model, tables, stored)
    transport = InProcess(network, Bill(network), secure_sums=secure, numbers=numbers_held(agents))
    bound, statistics = proven_again(agents, points, transport, certificate.radius)
    found.objections += differences(certificate, bound, statistics)
    about = described(problem, split, held)
    known = Verification.of(found.objections, certificate, bound, statistics, about)
    return replace(known, compared=tuple(found.compared), unchecked=tuple(found.unchecked))


def _compare_inference(
    found: Compared,
    certificate: Certificate,
    model: AnyModel,
    tables: Sequence[Table],
    stored: Stored,
) -> None:
    """Compute stored standard errors again, from the data that these agents have."""
    written = stored.inference
    assert written is not None
    clustered = written.kind == "clustered"
    if clustered and stored.clusters is None:
        raise InvalidInput(
            "inference.json has clustered standard errors: give the clusters of the rows "
            "(clusters=, or --cluster "
            "COLUMN), so that they can be computed again."
        )
    if written.correction not in ("", STATA, *CORRECTIONS.get(written.kind, ())):
        found.objections.append(
            f"inference.json has a correction that does not exist: {written.correction}"
        )
        return
    parties = met_here(
        tables, "samples", secure_sums=certificate.settings.get("secure_sums") is True
    )
    asked, clusters = questions_of(written)[0], stored.clusters if clustered else None
    with refusing_other_errors(found):
        check_problem(model.problem, certificate.settings["split"], asked.kind)
        operation, parties = ready_to_infer(parties, model, certificate.tolerance, asked, clusters)
        compare_table(found, written, model, certificate.tolerance, operation.added_up(parties)[1])


def _refuse_other_size(certificate: Certificate, model: AnyModel, data: Any) -> None:
    """Refuse data in one piece that has another number of rows, or of columns, than was
    certified.
    """
    split = certificate.settings["split"]
    if isinstance(data, list) or split == "users":
        return
    by_columns = split == "features"
    size = sum(p.columns if by_columns else p.rows for p in certificate.participants)
    (whole,) = gather_prepared(data, split, 1, model.preparation, same_order=True)
    noun, found = ("columns", whole.d) if by_columns else ("rows", whole.n)
    if found != size:
        raise InvalidData(
            f"the certificate covers {size:,} {noun}, and this data has {found:,}. Give all data "
            "that was fitted, of "
            "every party."
        )


def _compare_preparation(
    found: Compared,
    recipes: dict[str, Any] | None,
    prepared: Prepared | None,
    data: Any,
    split: str,
) -> None:
    """Whether the model's preparation is what the recipes of the certificate give for the data."""
    if recipes is None and prepared is None:
        return
    if recipes is None or prepared is None:
        found.objections.append(
            "the certificate and the model disagree on whether columns were prepared"
        )
    elif recipes.get("numbers_given"):
        same = plain(prepared.settings()) == plain(recipes)
        found.that(
            same,
            "the recipes of the preparation",
            "the model is prepared by other recipes than the certificate says",
        )
    else:
        follows = follows_from(prepared, recipes, data, split)
        objection = "the numbers of the preparation do not follow from the data"
        found.that(follows, "the numbers of the preparation", objection)


def differences(
    certificate: Certificate, bound: Bound, statistics: SummaryStatistics
) -> Iterator[str]:
    """Which of its numbers do not follow from the data.

    A gap may be larger than what is found here, never smaller by more than rounding explains, and a
    dual a little lower, never higher; everything else is compared relative to itself.
    """
    said = certificate
    if not bound.gap - rounding_of(bound, statistics) <= said.gap:
        yield _differs("gap", bound.gap, said.gap)
    unit = statistics.gap_unit
    for name, written, found, rounding in (
        ("primal", said.primal, bound.primal, bound.primal_rounding),
        ("unit", said.unit, unit, 0.0),
        ("primal_at_zero", said.primal_at_zero, statistics.primal_at_zero, 0.0),
        ("relative_gap", said.relative_gap, said.gap / unit, 0.0),
    ):
        if not abs(written - found) <= AGREEMENT * abs(found) + rounding:
            yield _differs(name, found, written)
    if not _follows(said, bound, unit):
        yield _differs("dual", lower_bound(said.primal, said.gap, bound.primal_rounding), said.dual)
    for name, claimed, known in (
        ("radius", said.radius, bound.radius),
        ("room", said.room, bound.room),
    ):
        if (claimed is None) != (known is None) or (
            claimed is not None
            and known is not None
            and not abs(claimed - known) <= AGREEMENT * known
        ):
            yield _differs(name, known, claimed)
    if not _alike(said.counts, statistics.counts):
        yield _differs("counts", statistics.counts, said.counts)


def _alike(written: Sequence[float] | None, found: Sequence[float] | None) -> bool:
    """Whether two lists of sums over rows are the same, up to rounding."""
    if written is None or found is None:
        return written is found
    close = AGREEMENT * sum(found)
    return len(written) == len(found) and all(
        abs(a - b) <= close for a, b in zip(written, found, strict=True)
    )


def _follows(said: Certificate, bound: Bound, unit: float) -> bool:
    """Whether the dual is the primal less the gap and what rounding can have moved the primal by,
    or a little lower.

    That rounding is known to so many digits as the slopes, of which it is a multiple: to few where
    it is itself a
    large share of the primal. A run whose messages are rotated rounds more than is found here, so
    its dual is lower: it claims less, and what it claims is proven.
    """
    rounding, last_digits = bound.primal_rounding, 2.0**-48 * (abs(said.primal) + said.gap)
    share = rounding / abs(said.primal) if said.primal else 1.0
    slack = rounding * min(NEAR + ALIKE * share, ALIKE) + last_digits
    more = said.primal - said.gap - said.dual - rounding
    return -slack <= more <= slack + AGREEMENT * (unit + abs(said.primal))


def rounding_of(bound: Bound, statistics: SummaryStatistics) -> float:
    """What two honest computations of a gap can differ by: its bound on rounding, and what moves a
    feasible dual.
    """
    return bound.rounding + MACHINES * statistics.gap_unit


def _differs(name: str, found: object, written: object) -> str:
    return f"{name} is {found!r} when computed from the data, but the certificate says {written!r}"


def described(problem: AnyProblem, split: str, participants: Sequence[Participant]) -> str:
    """Which problem it is, on which data: what a certificate is about, in words."""
    rows = participants[0].rows if split == "features" else sum(p.rows for p in participants)
    columns = (
        sum(p.columns for p in participants) if split == "features" else participants[0].columns
    )
    where = f"{rows} rows, {columns} columns, {len(participants)} parties, split by {split}"
    return f"{problem.kind.report.described(problem.settings())}; {where}"
