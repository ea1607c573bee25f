"""Check a certificate again, from the model and the data, trusting none of its numbers.

    own files and data ─→ claims ─→ sums of a fit and of its certificate, once more ─→ one verdict
    for all

One process has the whole model and asks all parties (`VerifyWhole`). Between organisations each has
its own part and its own copy of the certificate (`study.proof`). Both are the same text, `Verify`.
A *claim* is what a caller says before: the numbers of its certificate, and what is wrong with its
files. All callers know all claims and the same sums, so all come to the same verdict.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import msgspec

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
from coterie.data.table import Indices, columns_in_turn
from coterie.engines import Engine
from coterie.errors import (
    CorruptFile,
    CoterieError,
    InvalidInput,
    NumericalError,
    ProtocolError,
)
from coterie.networks import Network
from coterie.numerics.threads import cores
from coterie.problems import points_of
from coterie.problems.models import AnyModel
from coterie.problems.problem import AnyProblem
from coterie.run.agent import Agent, SummaryStatistics
from coterie.run.certificate import Bound, Certificate, Participant, Point, sentence
from coterie.run.certificate.bound import lower_bound
from coterie.run.disclosure import discloses
from coterie.run.finish import agent_at, proven_again
from coterie.run.network import around_a_server
from coterie.run.parties import Hosted, Operation, Parties, hosted
from coterie.run.settings import Placement
from coterie.run.setup import check_offset
from coterie.run.site import Site
from coterie.run.tables import attach_offset
from coterie.stats.inferring import ready_to_infer
from coterie.stats.preparing import dealt_columns, follows_from
from coterie.stats.rereading import ReadAgain, Reread, people_here, reading_again
from coterie.stats.standard_errors import STATA, check_problem, questions_of
from coterie.transport.edge import printable

LONGEST = 300
"""The maximum number of characters in an objection between organisations."""
Text = Annotated[str, msgspec.Meta(max_length=LONGEST)]
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


class Numbers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a certificate states, by the names of its fields."""

    primal: float
    dual: float
    gap: float
    relative_gap: float
    unit: float
    primal_at_zero: float
    radius: float | None
    room: float | None
    counts: tuple[float, ...] | None

    @staticmethod
    def of(certificate: Certificate) -> Numbers:
        """Those of that certificate."""
        return Numbers(**{name: getattr(certificate, name) for name in Numbers.__struct_fields__})


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a caller says of its files before anything is computed."""

    objections: list[Text]
    """What it found wrong with them alone."""
    about: str = ""
    """The digest of what the certificates of all must have in common: participants, settings, the
    parts of all parties.
    """
    numbers: Numbers | None = None
    lesser: list[Text] = []
    """Further objections, with which the numbers are computed all the same."""


@dataclass(frozen=True)
class Brought:
    """What a caller has for the proof, if nothing is wrong so far."""

    certificate: Certificate
    problem: AnyProblem
    as_agent: Callable[[Site], Agent[Any]]
    points: dict[int, Point]
    """The model and the dual vector of each party whose part is here."""


@discloses("the numbers of your certificate, a digest of it, and what is wrong with your files")
def claimed(claim: Claim) -> Claim:
    """What a caller tells the others."""
    return claim


@discloses("what is wrong with your standard errors")
def wrong_errors(objections: Sequence[str]) -> list[str]:
    """What a caller tells the others of its table of standard errors."""
    return shortened(objections)


@dataclass(frozen=True)
class Verify(Operation[Verification]):
    """Check a certificate: each caller compares its own files and data, then all compute the proof
    again.
    """

    name: ClassVar[str] = "verify"
    discloses: ClassVar = (claimed, wrong_errors, proven_again)
    governed: ClassVar[bool] = False

    again: ReadAgain

    @property
    def classifies(self) -> bool:
        return self.again.classifies

    def alone(self, table: Table) -> Table:
        return self.again.alone(table)

    @abstractmethod
    def claim(self, ready: Reread[Any], found: Compared) -> tuple[Claim, Brought | None]:
        """What this caller claims, and has for the proof; what it compared is noted."""

    @abstractmethod
    def check_errors(
        self, ready: Reread[Any], statistics: SummaryStatistics, found: Compared
    ) -> list[str]:
        """What is wrong with stored standard errors."""

    def together(self, parties: Parties) -> Verification:
        return self.judged(self.again.together(parties))

    def judged(self, ready: Reread[Any]) -> Verification:
        """The verdict, the same for all callers."""
        parties, found = ready.parties, Compared()
        claim, brought = self.claim(ready, found)
        claims: list[Claim] = parties.bring(partial(claimed, claim), Claim)
        objections = [*_named(parties, [one.objections for one in claims])]
        objections += _apart(parties, claims)
        if objections or brought is None:
            return Verification(tuple(objections))
        certificate = brought.certificate
        proof = partial(proven_again, brought.as_agent, brought.points, certificate.radius)
        proven = parties.run_protocol(proof, "proof")
        assert proven is not None
        bound, statistics = proven
        objections += _named(parties, [one.lesser for one in claims])
        objections += _named(parties, [_differing(certificate, one, proven) for one in claims])
        wrong = self.check_errors(ready, statistics, found)
        objections += _named(parties, parties.bring(partial(wrong_errors, wrong), list[str]))
        about = described(brought.problem, parties.split, certificate.participants)
        known = Verification.of(objections, certificate, bound, statistics, about)
        return replace(known, compared=tuple(found.compared), unchecked=tuple(found.unchecked))


def proof_agent(
    problem: AnyProblem, split: str, places: Sequence[Indices], network: Network | None, site: Site
) -> Agent[Any]:
    """A party as an agent in a proof."""
    site = replace(site, scratch={})
    return agent_at(site, problem, split, columns=places[site.index], network=network)


def places_of(parties: Parties) -> list[Indices]:
    """The places of each party's columns among those of all."""
    return columns_in_turn([card.columns for card in parties.cards], parties.look(dealt_columns))


def shortened(objections: Sequence[str]) -> list[str]:
    """Objections that are not too long to send."""
    return [text[:LONGEST] for text in objections]


def _named(parties: Parties, told: Sequence[Iterable[str]]) -> list[str]:
    """What the callers told: with their names, where there are several."""
    if len(told) == 1:
        return [*told[0]]
    return [
        f"{name}: {printable(text)}"
        for name, texts in zip(parties.names, told, strict=True)
        for text in texts
    ]


def _apart(parties: Parties, claims: Sequence[Claim]) -> Iterator[str]:
    """Whether the callers' certificates are copies of one."""
    if len(claims) == 1:
        return
    groups: dict[str, list[str]] = {}
    for name, claim in zip(parties.names, claims, strict=True):
        if claim.numbers is not None:
            groups.setdefault(claim.about, []).append(name)
    if len(groups) > 1:
        told = " differs from that of ".join(", ".join(group) for group in groups.values())
        yield f"the certificate of {told} in what it says of the run"
    radii = {claim.numbers.radius for claim in claims if claim.numbers is not None}
    if len(radii) > 1:
        yield (
            "the certificates speak of models of different norms: "
            f"{', '.join(sorted(map(str, radii)))}"
        )


def _differing(
    certificate: Certificate, claim: Claim, proven: tuple[Bound, SummaryStatistics]
) -> list[str]:
    """Which numbers of a claim do not follow from the data."""
    if claim.numbers is None:
        raise ProtocolError("a party sent neither a claim nor an objection.")
    stated = replace(certificate, **msgspec.structs.asdict(claim.numbers))
    return [*differences(stated, *proven)]


# -- of one process --------------------------------------------------------------------------------


def verify(
    certificate: Certificate,
    model: AnyModel,
    data: Any,
    *,
    offset: Any = None,
    same_order: bool = False,
    engine: str | Engine = Placement.engine,
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
    are refused. `same_order` is accepted as in `solve`, and changes nothing. `engine` is where the
    data is, as in `solve`.
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
            stored = Stored(result, inference, clusters)
            return _verify(certificate, model, placed, stored, engine)
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


def _verify(
    certificate: Certificate, model: AnyModel, data: Any, stored: Stored, engine: str | Engine
) -> Verification:
    settings = certificate.settings
    problem = model.problem.kind.models.problem_of(model, settings["problem"])
    again, meeting = reading_again(certificate, model, problem, data)
    recipes, follows = settings.get("prepare"), None
    if recipes is not None and model.preparation is not None and not recipes.get("numbers_given"):
        follows = follows_from(model.preparation, recipes, data, settings["split"], engine)
    asked = VerifyWhole(again, certificate, model, stored, isinstance(data, list), follows)
    with hosted(asked, data, meeting, engine) as parties:
        return asked.together(parties)


@dataclass(frozen=True)
class VerifyWhole(Verify):
    """Check the certificate of a model that one process has, with all parties' data."""

    certificate: Certificate
    model: Any
    stored: Stored
    in_pieces: bool
    """Whether the data is a list with each party's."""
    follows: bool | None
    """Whether the numbers of the preparation follow from the data, if there are some."""

    def claim(self, ready: Reread[Hosted], found: Compared) -> tuple[Claim, Brought | None]:
        certificate, model, parties = self.certificate, self.model, ready.parties
        problem = self.again.problem
        check_offset(problem, any("offset" in card.beside for card in parties.cards))
        held = [one for one in people_here(parties) if one is not None]
        tables = [site.data for site in parties.sites]
        compare(found, certificate, model, tables, ready.classes, held, self.in_pieces)
        if model.digest() != certificate.model_digest:
            found.objections.append("the model is not the model that was certified")
        if (part := getattr(model, "part", None)) is not None:
            found.objections.append(f"the model is a part: that of {part}")
        if getattr(model, "run", None) is not None:
            found.objections.append("the model names a run of parts, but it is whole")
        self._compare_preparation(found)
        if found.objections:
            return Claim(found.objections), None
        network = problem.kind.models.proof_network(model, around_a_server(len(tables)))
        as_agent = partial(proof_agent, problem, parties.split, places_of(parties), network)
        agents = [as_agent(site) for site in parties.sites]
        try:
            points = points_of(model, agents, certificate.witness, parties.answers)
        except InvalidInput as error:
            raise CorruptFile(f"the certificate proves nothing: {error}") from error
        compare_model(found, certificate, model, agents, points, parties.answers)
        if self.stored.result is not None:
            compare_run(found, self.stored.result, certificate)
        claim = Claim([], "", Numbers.of(certificate), found.objections)
        return claim, Brought(certificate, problem, as_agent, dict(enumerate(points)))

    def check_errors(
        self, ready: Reread[Hosted], statistics: SummaryStatistics, found: Compared
    ) -> list[str]:
        """Compute stored standard errors again, from the data that these parties have."""
        written, clusters = self.stored.inference, self.stored.clusters
        if written is None:
            return []
        clustered = written.kind == "clustered"
        if clustered and clusters is None:
            raise InvalidInput(
                "inference.json has clustered standard errors: give the clusters of the rows "
                "(clusters=, or --cluster "
                "COLUMN), so that they can be computed again."
            )
        if written.correction not in ("", STATA, *CORRECTIONS.get(written.kind, ())):
            return [f"inference.json has a correction that does not exist: {written.correction}"]
        model, tolerance = self.model, self.certificate.tolerance
        asked, compared = questions_of(written)[0], Compared()
        with refusing_other_errors(compared):
            check_problem(model.problem, ready.parties.split, asked.kind)
            operation, parties = ready_to_infer(
                ready.parties, model, tolerance, asked, clusters if clustered else None
            )
            received = operation.added_up(parties)[1]
            compare_table(compared, written, model, tolerance, received)
        found.compared += compared.compared
        return compared.objections

    def _compare_preparation(self, found: Compared) -> None:
        """Whether the model's preparation is what the recipes of the certificate give."""
        recipes, prepared = self.certificate.settings.get("prepare"), self.model.preparation
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
            objection = "the numbers of the preparation do not follow from the data"
            found.that(bool(self.follows), "the numbers of the preparation", objection)


# -- numbers ---------------------------------------------------------------------------------------


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
