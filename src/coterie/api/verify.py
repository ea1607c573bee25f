"""Check a certificate again, from the model and the data, trusting none of its numbers.

    own files and data ─→ claims ─→ sums of a fit and of its certificate, once more ─→ one verdict
    for all

One process has the whole model and asks all parties (`VerifyWhole`). Between organisations each has
its own part and its own copy of the certificate (`study.proof`). Both run the same steps, `Verify`.
A *claim* is a caller's statement before the computation: the numbers of its certificate, and the
errors in its files. All callers know all claims and the same sums, so all come to the same verdict.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec

from coterie.api.comparison import (
    Compared,
    compare,
    compare_model,
    compare_run,
    compare_table,
    plain,
    refusing_other_errors,
    rows_of,
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
from coterie.problems.problem import AnyProblem, K
from coterie.run.agent import Agent, AgentForm, SummaryStatistics, with_data
from coterie.run.certificate import Bound, Certificate, Participant, Point, sentence
from coterie.run.certificate.bound import lower_bound
from coterie.run.disclosure import discloses
from coterie.run.finish import agent_form_at, proven_again
from coterie.run.network import around_a_server
from coterie.run.parties import Hosted, OperationOn, Parties, hosted
from coterie.run.settings import Placement
from coterie.run.setup import check_offset
from coterie.run.site import Site, SiteForm
from coterie.run.tables import attach_offset
from coterie.stats.inferring import ready_to_infer
from coterie.stats.preparing import dealt_columns, follows_from
from coterie.stats.rereading import ReadAgain, Reread, participants_of, reading_again
from coterie.stats.standard_errors import STATA, check_problem, questions_of
from coterie.transport.edge import printable

P = TypeVar("P", bound=Parties, contravariant=True)
LONGEST = 300
"""The maximum number of characters in an objection between organisations."""
Text = Annotated[str, msgspec.Meta(max_length=LONGEST)]
MACHINES = 1e-12
"""By how much another machine may round a dual into its domain, relative to the null loss."""
AGREEMENT = 1e-9
"""How closely recomputed numbers must agree with the written ones, relative to themselves."""
NEAR = 1e-6
"""How closely two honest bounds on the rounding of a primal agree, relative to themselves."""
ALIKE = 4.0
"""How much further these bounds may be apart if residuals consist of rounding."""


@dataclass(frozen=True)
class Verification:
    """The outcome of a verification. All numbers are computed from the model and the data."""

    objections: tuple[str, ...]
    """Every contradiction that was found; empty if the certificate holds."""
    primal: float = math.nan
    dual: float = math.nan
    gap: float = math.nan
    relative_gap: float = math.nan
    radius: float | None = None
    rounding: float = math.nan
    """The part of the gap that only allows for rounding."""
    about: str = ""
    """Description of the problem: loss, penalty, intercept, and the size of the data."""
    proves: str = ""
    """The statement that these numbers prove."""
    compared: tuple[str, ...] = ()
    """Names, orders and files that agree with the data."""
    unchecked: tuple[str, ...] = ()
    """Statements that do not follow from the data. No proof rests on them."""
    signed_by: tuple[str, ...] = ()
    """Between organisations: the parties whose signatures under the certificate hold."""
    unsigned_by: tuple[str, ...] = ()
    """Between organisations: the parties without such a signature."""

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
        """Make a verification of numbers that were found, with the statement that they prove."""
        relative = bound.gap / statistics.gap_unit
        proves = ""
        if not objections:
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
            proves,
        )


class Numbers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The numbers of a certificate, by the names of its fields."""

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
        """Take the numbers out of a certificate."""
        values = {name: getattr(certificate, name) for name in Numbers.__struct_fields__}
        return Numbers(**values)


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A caller's statement about its files, before anything is computed."""

    objections: list[Text]
    """Contradictions in its own files and data."""
    about: str = ""
    """The digest of the parts that all certificates have in common: participants, settings, and the
    digests of all parties' models.
    """
    numbers: Numbers | None = None
    lesser: list[Text] = []
    """Further objections, which do not prevent the computation."""


@dataclass(frozen=True)
class Brought:
    """The input of a caller to the proof, if it has found no contradiction so far."""

    certificate: Certificate
    problem: AnyProblem
    as_agent: Callable[[Site], Agent[AnyProblem]]
    points: dict[int, Point]
    """The model and the dual vector of each party whose part is here."""


@discloses("the numbers of your certificate, a digest of it, and what is wrong with your files")
def claimed(claim: Claim) -> Claim:
    """Send a caller's claim to the others."""
    return claim


@discloses("what is wrong with your standard errors")
def wrong_errors(objections: Sequence[str]) -> list[str]:
    """Send a caller's objections to standard errors to the others."""
    return shortened(objections)


@dataclass(frozen=True)
class Verify(OperationOn[Verification, P]):
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
    def claim(self, ready: Reread[P], found: Compared) -> tuple[Claim, Brought | None]:
        """Make this caller's claim and its input to the proof, and note its comparisons."""

    @abstractmethod
    def check_errors(
        self, ready: Reread[P], statistics: SummaryStatistics, found: Compared
    ) -> list[str]:
        """List objections to stored standard errors."""

    def together(self, parties: P) -> Verification:
        return self.judged(self.again.together(parties))

    def judged(self, ready: Reread[P]) -> Verification:
        """Reach the verdict, which is the same for all callers."""
        parties = ready.parties
        found = Compared()
        claim, brought = self.claim(ready, found)
        claims: list[Claim] = parties.bring(partial(claimed, claim), Claim)
        objections = _named(parties, [one.objections for one in claims])
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


def proof_agent_form(
    problem: K,
    split: str,
    places: Sequence[Indices],
    network: Network | None,
    site: SiteForm,
) -> AgentForm[K]:
    """Make a party the agent of a proof, for a process that may not have its table."""
    site = replace(site, scratch={})
    return agent_form_at(site, problem, split, columns=places[site.index], network=network)


def proof_agent(
    problem: K, split: str, places: Sequence[Indices], network: Network | None, site: Site
) -> Agent[K]:
    """Make a party the agent of a proof, where its table is."""
    return with_data(proof_agent_form(problem, split, places, network, site))


def places_of(parties: Parties) -> list[Indices]:
    """Find the places of each party's columns among those of all."""
    counts = [card.columns for card in parties.cards]
    return columns_in_turn(counts, parties.look(dealt_columns))


def shortened(objections: Sequence[str]) -> list[str]:
    """Shorten objections that are too long to send."""
    return [text[:LONGEST] for text in objections]


def _named(parties: Parties, objections: Sequence[Iterable[str]]) -> list[str]:
    """Join the objections of all callers, with the callers' names if there are several."""
    if len(objections) == 1:
        return list(objections[0])
    joined = []
    for name, texts in zip(parties.names, objections, strict=True):
        for text in texts:
            joined.append(f"{name}: {printable(text)}")
    return joined


def _apart(parties: Parties, claims: Sequence[Claim]) -> Iterator[str]:
    """Differences between the callers' certificates, which should be copies of one."""
    if len(claims) == 1:
        return
    groups: dict[str, list[str]] = {}
    for name, claim in zip(parties.names, claims, strict=True):
        if claim.numbers is not None:
            groups.setdefault(claim.about, []).append(name)
    if len(groups) > 1:
        names = [", ".join(group) for group in groups.values()]
        different = " differs from that of ".join(names)
        yield f"the certificate of {different} in its description of the run"
    radii = {claim.numbers.radius for claim in claims if claim.numbers is not None}
    if len(radii) > 1:
        norms = ", ".join(sorted(map(str, radii)))
        yield f"the certificates are about models of different norms: {norms}"


def _differing(
    certificate: Certificate, claim: Claim, proven: tuple[Bound, SummaryStatistics]
) -> list[str]:
    """List the numbers of a claim that do not follow from the data."""
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
    """Recompute a certificate from a model and data, and compare all that it says with these.

    Names are compared with the data, too: classes, columns, users and parties. Columns are found by
    their names, in any order. The method and the seed of the run do not follow from data and model,
    and the proof does not rest on them (`Verification.unchecked`). The digests of the certificate
    identify the rows of each party and their order: rows in another order are refused.

    Parameters
    ----------
    certificate : Certificate
        The certificate to check.
    model : LinearModel, LowRankModel, ...
        The model that the certificate is about.
    data : one party's data or a list
        The data that was fitted, in the form in which it was fitted.
    offset : array or list of arrays, optional
        The offset of the rows, if the model was fitted with one.
    same_order : bool, default=False
        Accepted as in `solve`; it changes nothing.
    engine : str or Engine, default="local"
        Where the data is.
    result : Result, optional
        A stored result, to compare its `run.json` with the certificate.
    inference : Inference, optional
        Stored standard errors, to compute them again.
    clusters : array or list of arrays, optional
        The cluster of every row, if the stored standard errors are clustered.

    Returns
    -------
    Verification
        `holds` is True if there is no objection.

    Raises
    ------
    CorruptFile
        If the certificate lacks something that a proof needs.
    InvalidInput
        If the certificate is one part of a study between organisations.

    Examples
    --------
    >>> import coterie as co, numpy as np
    >>> X = np.random.default_rng(0).standard_normal((40, 2))
    >>> data = (X, X.sum(axis=1))
    >>> result = co.solve(co.Problem("squared", "l2", 0.1), data, agents=4)
    >>> co.verify(result.certificate, result.model, data).holds
    True
    """
    if "parts" in certificate.settings:
        raise InvalidInput(
            "this certificate comes from a study between organisations, and each party holds a "
            "part of the proof: run `coterie verify party.toml` at every party."
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
    """The other files of a fit, as far as they were given."""

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
    recipes = settings.get("prepare")
    follows = None
    if recipes is not None and model.preparation is not None and not recipes.get("numbers_given"):
        follows = follows_from(model.preparation, recipes, data, settings["split"], engine)
    asked = VerifyWhole(again, certificate, model, stored, isinstance(data, list), follows)
    with hosted(asked, data, meeting, engine) as parties:
        return asked.together(parties)


@dataclass(frozen=True)
class VerifyWhole(Verify[Hosted]):
    """Check the certificate of a model that one process has, with all parties' data."""

    certificate: Certificate
    model: AnyModel
    stored: Stored
    in_pieces: bool
    """Whether the data is a list with one entry per party."""
    follows: bool | None
    """Whether the numbers of the preparation follow from the data, if there are some."""

    def claim(self, ready: Reread[Hosted], found: Compared) -> tuple[Claim, Brought | None]:
        certificate = self.certificate
        model = self.model
        parties = ready.parties
        problem = self.again.problem
        has_offset = any("offset" in card.row_values for card in parties.cards)
        check_offset(problem, has_offset)
        held = [one for one in participants_of(parties) if one is not None]
        tables = [site.data for site in parties.sites]
        compare(found, certificate, model, tables, ready.classes, held, self.in_pieces)
        self._compare_digest(found)
        self._compare_preparation(found)
        if found.objections:
            return Claim(found.objections), None
        network = problem.kind.models.proof_network(model, around_a_server(len(tables)))
        known = problem, parties.split, places_of(parties), network
        as_agent = partial(proof_agent, *known)
        agents = [proof_agent_form(*known, site) for site in parties.sites]
        try:
            points = points_of(model, agents, certificate.witness, parties.answers)
        except InvalidInput as error:
            raise CorruptFile(f"the certificate proves nothing: {error}") from error
        compare_model(found, certificate, model, agents, points, parties.answers)
        if self.stored.result is not None:
            compare_run(found, self.stored.result, certificate)
        claim = Claim([], "", Numbers.of(certificate), found.objections)
        return claim, Brought(certificate, problem, as_agent, dict(enumerate(points)))

    def _compare_digest(self, found: Compared) -> None:
        """Compare the model with the digest of the model that was certified."""
        if self.model.digest() != self.certificate.model_digest:
            found.objections.append("the model is not the model that was certified")
        part = getattr(self.model, "part", None)
        if part is not None:
            found.objections.append(f"the model is a part: that of {part}")
        if getattr(self.model, "run", None) is not None:
            found.objections.append("the model names a run of parts, but it is whole")

    def check_errors(
        self, ready: Reread[Hosted], statistics: SummaryStatistics, found: Compared
    ) -> list[str]:
        """Compute stored standard errors again, from the data that these parties have."""
        written = self.stored.inference
        if written is None:
            return []
        clusters = None
        if written.kind == "clustered":
            clusters = self.stored.clusters
            if clusters is None:
                raise InvalidInput(
                    "inference.json has clustered standard errors: give the clusters of the rows "
                    "(clusters=, or --cluster COLUMN), so that they can be computed again."
                )
        if written.correction not in ("", STATA, *CORRECTIONS.get(written.kind, ())):
            return [f"inference.json has a correction that does not exist: {written.correction}"]
        model = self.model
        tolerance = self.certificate.tolerance
        asked = questions_of(written)[0]
        compared = Compared()
        with refusing_other_errors(compared):
            check_problem(model.problem, ready.parties.split, asked.kind)
            operation, parties = ready_to_infer(ready.parties, model, tolerance, asked, clusters)
            _, received = operation.added_up(parties)
            compare_table(compared, written, model, tolerance, received)
        found.compared += compared.compared
        return compared.objections

    def _compare_preparation(self, found: Compared) -> None:
        """Compare the model's preparation with the recipes of the certificate."""
        recipes = self.certificate.settings.get("prepare")
        prepared = self.model.preparation
        if recipes is None and prepared is None:
            return
        if recipes is None or prepared is None:
            found.objections.append(
                "the certificate and the model disagree on whether columns were prepared"
            )
        elif recipes.get("numbers_given"):
            same = plain(prepared.settings()) == plain(recipes)
            objection = "the model is prepared by other recipes than the certificate states"
            found.that(same, "the recipes of the preparation", objection)
        else:
            objection = "the numbers of the preparation do not follow from the data"
            found.that(bool(self.follows), "the numbers of the preparation", objection)


# -- numbers ---------------------------------------------------------------------------------------


def differences(
    certificate: Certificate, bound: Bound, statistics: SummaryStatistics
) -> Iterator[str]:
    """List the numbers of a certificate that do not follow from the data.

    A gap may be larger than the one that is computed here, and smaller only by rounding. A dual may
    be a little lower, never higher. Everything else is compared relative to itself.
    """
    unit = statistics.gap_unit
    primal = certificate.primal
    gap = certificate.gap
    if not bound.gap - rounding_of(bound, statistics) <= gap:
        yield _differs("gap", bound.gap, gap)
    for name, written, found, rounding in (
        ("primal", primal, bound.primal, bound.primal_rounding),
        ("unit", certificate.unit, unit, 0.0),
        ("primal_at_zero", certificate.primal_at_zero, statistics.primal_at_zero, 0.0),
        ("relative_gap", certificate.relative_gap, gap / unit, 0.0),
    ):
        if not abs(written - found) <= AGREEMENT * abs(found) + rounding:
            yield _differs(name, found, written)
    if not _follows(certificate, bound, unit):
        yield _differs("dual", lower_bound(primal, gap, bound.primal_rounding), certificate.dual)
    if not _close(certificate.radius, bound.radius):
        yield _differs("radius", bound.radius, certificate.radius)
    if not _close(certificate.room, bound.room):
        yield _differs("room", bound.room, certificate.room)
    if not _alike(certificate.counts, statistics.counts):
        yield _differs("counts", statistics.counts, certificate.counts)


def _close(written: float | None, found: float | None) -> bool:
    """Whether two numbers that may be missing are the same, up to rounding."""
    if written is None or found is None:
        return written is found
    return abs(written - found) <= AGREEMENT * found


def _alike(written: Sequence[float] | None, found: Sequence[float] | None) -> bool:
    """Whether two lists of sums over rows are the same, up to rounding."""
    if written is None or found is None:
        return written is found
    if len(written) != len(found):
        return False
    close = AGREEMENT * sum(found)
    return all(abs(a - b) <= close for a, b in zip(written, found, strict=True))


def _follows(certificate: Certificate, bound: Bound, unit: float) -> bool:
    """Whether the dual is the primal less the gap and the rounding of the primal, or a bit lower.

    The bound on that rounding is a multiple of the gradients, and as accurate as these; less
    accurate where the rounding is a large share of the primal. A run with rotated messages rounds
    more than the computation here, so its dual is lower: it claims less, and its claim is proven.
    """
    primal = certificate.primal
    rounding = bound.primal_rounding
    last_digits = 2.0**-48 * (abs(primal) + certificate.gap)
    share = 1.0
    if primal:
        share = rounding / abs(primal)
    slack = rounding * min(NEAR + ALIKE * share, ALIKE) + last_digits
    more = primal - certificate.gap - certificate.dual - rounding
    return -slack <= more <= slack + AGREEMENT * (unit + abs(primal))


def rounding_of(bound: Bound, statistics: SummaryStatistics) -> float:
    """The largest difference of two honest computations of a gap: its bound on rounding, and the
    rounding of a feasible dual.
    """
    return bound.rounding + MACHINES * statistics.gap_unit


def _differs(name: str, found: object, written: object) -> str:
    return (
        f"{name} is {found!r} when computed from the data, but the certificate states {written!r}"
    )


def described(problem: AnyProblem, split: str, participants: Sequence[Participant]) -> str:
    """Describe the problem and the data that a certificate is about."""
    rows = rows_of(participants, split)
    columns = participants[0].columns
    if split == "features":
        columns = sum(participant.columns for participant in participants)
    where = f"{rows} rows, {columns} columns, {len(participants)} parties, split by {split}"
    return f"{problem.kind.report.described(problem.settings())}; {where}"
