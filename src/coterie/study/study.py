"""Read and check a study: one TOML file that all parties hold, and one that each party keeps.

study.toml, the same at every party:

    name = "readmission"
    split = "features"                  # a party holds some columns; "samples": some rows; "users":
                                        own model
    id = "patient"                      # match rows by this column; or, if all list the same rows
                                        in the same # order, same-order = true
    [problem]
    loss = "logistic"
    penalty = "l1"
    intercept = true                    # the default of linear models; false leaves it out
    strength = 0.001                    # or leave it out, and [path] with strengths, cv and rule
                                        chooses it
    [prepare]                           # if columns are raw: see docs/preparation.md
    numbers = "impute, standardise"
    [[party]]
    name = "clinic"
    address = "clinic.example.org:7400"
    [[party]]
    name = "registry"
    ...

party.toml, at one party:

    study = "study.toml"
    party = "clinic"
    data = "clinic.parquet"
    keys = "keys"                       # the folder with key.pem, certificate.pem and authority.pem
    target = "readmitted"               # at the party with the labels; there also weight, and
                                        offset or exposure # for survival: time, event, and perhaps
                                        entry and strata

When two parties connect, they compare their studies line by line (`Study.agreement`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from coterie import __version__
from coterie.data.preparation.recipes import Preparation
from coterie.engines.processes import pace_of
from coterie.errors import CoterieError, InvalidInput, InvalidProblem, UnknownName
from coterie.methods import method as find_method
from coterie.networks import Network, from_edges, star
from coterie.numerics.arrays import digest, whole_number
from coterie.problems import kinds
from coterie.problems.problem import AnyProblem, Problem
from coterie.problems.shared.problem import Shared
from coterie.problems.users import problem_of_users
from coterie.run.network import make_network, wants_secure_sums
from coterie.run.settings import KEYWORDS, Algorithm, Limits, Placement, Settings
from coterie.run.stopping import checked_limits
from coterie.stats.preparing import check_problem as check_preparation
from coterie.stats.standard_errors import Question, check_problem
from coterie.stats.strengths import (
    COUNT,
    KNOBS,
    check_folds,
    check_strength,
    check_strengths,
    knob_of,
)
from coterie.study.policy import Policy
from coterie.transport.layout import Layout

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):\d{1,5}")

UNPRICED = {"loss", "penalty", "l1_ratio", "intercept"}
"""The keys of [problem] in a study of users that lets the parties choose the rest."""
UNUSABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What a value of an unexpected type can end in."""
LONGEST_DEADLINE, LONGEST_PATIENCE = 86_400.0, 30 * 86_400.0
"""Seconds: a day, and a month."""


class Party(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A party, and the address at which it listens."""

    name: str
    address: str | None = None
    """host:port at which the others reach it; without one it dials all its neighbours, and none of
    them dials it.
    """
    key: str = ""
    """SHA-256 of its public key; `coterie provision` writes it here."""


class PathSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """The strengths of a path, and the rule that chooses one: see `coterie.api.path`."""

    strengths: tuple[float, ...] | None = None
    """None: `count` strengths, from the data."""
    count: int = COUNT
    cv: int = 5
    rule: Literal["best", "1se"] = "best"

    @property
    def fits(self) -> int:
        """The number of fits, with those of the folds."""
        return self.points * (self.cv + 1)

    @property
    def points(self) -> int:
        """The number of strengths."""
        return self.count if self.strengths is None else len(self.strengths)


class Study(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """What all parties agreed to run. The names are those of `coterie.api.solve`, which explains
    them.
    """

    name: str
    party: tuple[Party, ...]
    problem: dict[str, Any]
    split: Literal["samples", "features", "users"] = "features"
    network: str | list[tuple[str, str]] | None = Settings.network
    """A name, or pairs of parties that send messages to each other."""
    method: str = Algorithm.method
    options: dict[str, Any] = {}
    """The method's parameters."""
    acceleration: str = Algorithm.acceleration
    tol: float = Limits.tol
    max_rounds: int = Limits.max_rounds
    max_seconds: float | None = Limits.max_seconds
    max_bits: float | None = Limits.max_bits
    check_every: int | None = Limits.check_every
    seed: int = Settings.seed
    id: str | None = None
    """The column by which rows are matched, split by features."""
    same_order: bool = Placement.same_order
    """Split by features, in place of an id: all parties list the same rows in the same order."""
    psi: bool = False
    """Match by private set intersection instead of keyed hashes."""
    duplicates: Literal["error", "first"] = "error"
    labels_shared: bool = False
    """Whether the parties agree that all of them learn the labels, which some methods need."""
    dials: tuple[tuple[str, str], ...] = ()
    """Pairs of neighbours of which the first dials the second; of all others, the later one in the
    study dials.
    """
    secure_sums: bool | None = Settings.secure_sums
    """Whether sums are masked; by default split by samples and parties are three or more."""
    prepare: dict[str, Any] | str | list[str] | None = Settings.prepare
    """The preparation of raw columns: numbers, text and columns of a `Preparation`, or recipes."""
    path: PathSettings | None = None
    """The strengths to try; the strength in the problem is then left out."""
    inference: Literal["model", "robust", "clustered"] | None = None
    """The standard errors that every party gets with the model."""
    weights: Literal["frequency", "sampling", "precision"] | None = None
    """The meaning of the weights of rows for standard errors; needed if a party has weights."""
    correction: Literal["HC0", "HC1", "CR0", "CR1", "CR1S", "CR2"] | None = None
    """The correction of standard errors for small samples; None: the default."""
    deadline: float = 30.0
    """Seconds without a message before a party counts as lost."""
    clock: Literal["virtual", "real"] = "virtual"
    """Split by users: "virtual", parties wake up in the order of a seed; "real", they wake up in
    real time, and no party waits for another.
    """
    pace: float = 0.01
    """Seconds between two wake-ups of a party, on average, if the clock is real."""

    @property
    def names(self) -> list[str]:
        """The parties, in the order of the agents."""
        return [party.name for party in self.party]

    def without(self, parties: Sequence[str]) -> Study:
        """The study of the other parties, if these are gone for good."""
        gone = {self.names[self.index(party)] for party in parties}
        left = tuple(party for party in self.party if party.name not in gone)
        if len(left) < 2:
            raise InvalidInput(
                f"without {', '.join(parties)} there are no two parties left; one party alone fits "
                "with `coterie fit`."
            )
        network = self.network
        if isinstance(network, list):
            network = [pair for pair in network if not gone & {*pair}]
        dials = tuple(pair for pair in self.dials if not gone & {*pair})
        reduced = msgspec.structs.replace(self, party=left, network=network, dials=dials)
        try:
            agents = reduced.make_network().agents
        except InvalidInput as error:
            raise InvalidInput(
                f"without {', '.join(parties)}, of the network is left: {error}"
            ) from error
        if agents != len(left):
            raise InvalidInput(
                f"without {', '.join(parties)} the network of the study falls apart: give it "
                "other pairs."
            )
        return reduced

    def index(self, party: str) -> int:
        """The index of that party's agent."""
        if party not in self.names:
            raise UnknownName("party of this study", party, self.names)
        return self.names.index(party)

    @property
    def has_secure_sums(self) -> bool:
        """Whether sums are masked."""
        only_sums = self.make_problem().kind.problems.only_sums
        return wants_secure_sums(self.secure_sums, self.split, len(self.party), True, only_sums)

    @property
    def messages(self) -> str:
        """The split whose messages are sent: users with a common model send the messages of parties
        with rows.
        """
        return "samples" if self.make_problem().kind.problems.only_sums else self.split

    def make_problem(self, strength: float | None = None) -> Any:
        """The problem; if a path chooses the strength, with this strength, by default 1."""
        if self.chooses:
            return Shared(**{"loss": "logistic", **self.problem})
        if self.split == "users":
            return problem_of_users(**self.problem)
        if self.path is None:
            return Problem(**self.problem)
        knob = knob_of(self.problem.get("penalty", "none"))
        return Problem(**{**self.problem, knob: 1.0 if strength is None else strength})

    @property
    def chooses(self) -> bool:
        """Whether parties that are users choose among linear models: the study then names neither
        prices nor a method.
        """
        return self.split == "users" and self.method == "auto" and self.problem.keys() <= UNPRICED

    def make_preparation(self) -> Preparation | None:
        """The preparation of raw columns, if there is one."""
        return None if self.prepare is None else Preparation.of(self.prepare)

    def settings(self) -> Settings:
        """The settings of the fit, if they are valid."""
        keywords = {name: getattr(self, name) for name in KEYWORDS & set(self.__struct_fields__)}
        made = Settings.of(**keywords)
        algorithm = replace(made.algorithm, options=self.options)
        return replace(
            made,
            limits=checked_limits(made.limits),
            algorithm=algorithm,
            prepare=self.make_preparation(),
        )

    def make_network(self) -> Network:
        """The edges along which parties send messages; split by users, who is alike."""
        if not isinstance(self.network, list):
            return make_network(self.network, self.split, len(self.party), self.seed)
        edges = [(self.index(one), self.index(other)) for one, other in self.network]
        if self.split == "users":
            return from_edges(edges, len(self.party), connected=False)
        return from_edges(edges)

    def neighbours(self, party: int) -> list[int]:
        """The parties to which that party connects."""
        network = self.carrying()
        layout = Layout(network, range(network.agents), party)
        return list(layout.others if self.split == "users" else layout.partners)

    def carrying(self) -> Network:
        """The network along which messages travel: split by users, each party reaches all others,
        as if through a server.
        """
        if self.split == "users":
            return star(len(self.party), server=True)
        return self.make_network()

    def dialled_by(self, party: int, neighbours: Iterable[int]) -> set[int]:
        """The neighbours that this party dials."""
        chosen = {(self.index(one), self.index(other)) for one, other in self.dials}

        def dials(one: int, other: int) -> bool:
            if (one, other) in chosen or (other, one) in chosen:
                return (one, other) in chosen
            if None in (self.party[one].address, self.party[other].address):
                return self.party[one].address is None
            return one > other

        return {other for other in neighbours if dials(party, other)}

    @property
    def agreement(self) -> str:
        """All settings that must be equal at all parties, one per line, with the version of the
        program.
        """
        plain = msgspec.to_builtins(self)
        for name in ("path", "inference", "weights", "correction", "prepare"):
            if plain[name] is None:
                del plain[name]
        if not self.same_order:
            del plain["same-order"]
        lines = [
            f"{key} = {json.dumps(value)}"
            for key, value in plain.items()
            if key not in ("party", "problem")
        ]
        # Without its line in the study, versions with another default would fit another model.
        problem = {"intercept": self.make_problem().intercept, **plain["problem"]}
        lines += [f"problem.{key} = {json.dumps(value)}" for key, value in problem.items()]
        lines += [
            f"party {k} = {party.name}, key {party.key or 'unknown'}"
            for k, party in enumerate(self.party)
        ]
        return "\n".join([f"coterie = {__version__}", *sorted(lines)])

    def pins(self) -> dict[str, str]:
        """The fingerprint of every party's key; without them parties do not connect."""
        missing = [party.name for party in self.party if not party.key]
        if missing:
            raise InvalidInput(
                f"study.toml holds no key of {', '.join(missing)}. `coterie provision study.toml "
                "--sign request.pem` writes it there, at the coordinator, who then sends "
                "study.toml to all parties."
            )
        return {party.name: party.key for party in self.party}

    @property
    def run_id(self) -> str:
        """A short name for runs of this study."""
        return digest(self.agreement)[:16]


class PartyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """The settings that one party keeps to itself; paths are relative to its file."""

    study: Path
    party: str
    data: Path
    keys: Path = Path("keys")
    output: Path = Path("result")
    checkpoint: Path | None = Path("checkpoint")
    """The folder of snapshots, from which a party continues after a crash; "" for none."""
    target: str | None = None
    weight: str | None = None
    offset: str | None = None
    exposure: str | None = None
    """A column whose logarithm is the offset."""
    cluster: str | None = None
    """The column with the cluster of each row, for a study with `inference = "clustered"`."""
    time: str | None = None
    event: str | None = None
    entry: str | None = None
    strata: str | None = None
    """For survival, in place of a target."""
    labels: dict[str, str] | None = None
    """Columns of labels by role, in place of a target, for kinds of problems of other packages
    (`Kind.labels`).
    """
    columns: tuple[str, ...] | None = None
    test: float | str | None = None
    """Rows for `coterie evaluate`: a file, or a share of the data that is not fitted to, such as
    0.3.
    """
    listen: str | None = None
    """host:port to listen on, if it is not the address in the study."""
    patience: float = 600.0
    """Seconds to wait for the neighbours to connect."""
    policy: Policy = Policy()
    """The limits on what a study may ask of this party."""

    def roles(self) -> dict[str, Any]:
        """The columns of labels, weights and offsets, as keywords of `read`."""
        labels = {role for kind in kinds() for role in kind.labels.roles}
        own = sorted(labels & {*self.__struct_fields__})
        return {
            role: getattr(self, role) for role in ("weight", "offset", "exposure", "labels", *own)
        }


T = TypeVar("T", Study, PartyFile)


def load_study(path: str | Path) -> Study:
    """Read study.toml. A wrong line is refused, and the error names the place."""
    with _refusing(path):
        study = _decoded(path, Study)
        _check_study(path, study)
    return study


@contextmanager
def _refusing(path: str | Path) -> Iterator[None]:
    """Refuse a file with a value that no check expects, and name the file."""
    try:
        yield
    except CoterieError:
        raise
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({error.strerror}).") from error
    except UNUSABLE as error:
        raise InvalidInput(f"{path}: {str(error) or type(error).__name__}") from error


def _check_study(path: str | Path, study: Study) -> None:
    """Refuse values that parties cannot have, or that do not fit together."""
    _check_parties(path, study)
    _check_clock(path, study)
    _check_rows(path, study)
    _check_path(path, study)
    problem = study.make_problem()
    _check_preparation(path, study, problem)
    _check_inference(path, study, problem)
    study.settings()
    _check_method(path, study)
    _check_network(path, study, problem)
    _check_dials(path, study)


def _check_parties(path: str | Path, study: Study) -> None:
    """Refuse names and addresses that parties cannot have."""
    names = study.names
    if len(names) < 2:
        raise InvalidInput(f"{path}: a study has at least two parties, not {len(names)}.")
    for party in study.party:
        if not NAME.fullmatch(party.name):
            raise InvalidInput(
                f"{path}: {party.name!r} is not a valid party name; use letters, digits and dashes."
            )
        if party.address is not None and not ADDRESS.fullmatch(party.address):
            raise InvalidInput(
                f"{path}: the address of {party.name} is host:port, not {party.address!r}."
            )
    if len({name.lower() for name in names}) < len(names):
        raise InvalidInput(f"{path}: two parties have the same name ({', '.join(names)}).")


def _check_clock(path: str | Path, study: Study) -> None:
    """Refuse invalid times, and real time if parties wait for each other."""
    _check_seconds(path, "deadline", study.deadline, LONGEST_DEADLINE)
    pace_of(study.clock, study.pace)
    if study.clock == "real" and study.split != "users":
        raise InvalidInput(f"{path}: clock = 'real' needs split = 'users'.")


def _check_preparation(path: str | Path, study: Study, problem: AnyProblem) -> None:
    """Refuse a preparation that this problem cannot have."""
    if study.prepare is None:
        return
    try:
        check_preparation(problem, study.split)
        study.make_preparation()
    except InvalidInput as error:
        raise InvalidInput(f"{path}: [prepare]: {error}") from error


def _check_network(path: str | Path, study: Study, problem: AnyProblem) -> None:
    """Refuse a network of other parties, or one that this problem cannot have."""
    try:
        problem.kind.problems.check_network(study.network)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error
    agents = study.make_network().agents
    if agents != len(study.party):
        raise InvalidInput(
            f"{path}: the network is of {agents} agents, but there are {len(study.party)} parties."
        )


def _check_inference(path: str | Path, study: Study, problem: AnyProblem) -> None:
    """Refuse standard errors that this problem does not have."""
    if study.inference is None:
        for name in ("weights", "correction"):
            if getattr(study, name) is not None:
                raise InvalidInput(
                    f'{path}: {name} is for standard errors: add inference = "robust", for '
                    "example, or leave it out."
                )
        return
    try:
        asked = Question.of(study.inference, study.weights, study.correction)
        check_problem(problem, study.split, asked.kind)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {_in_words_of_a_study(str(error))}") from error


def _in_words_of_a_study(message: str) -> str:
    """The message with lines of study.toml in place of Python's arguments."""
    renamed = re.sub(r"\bkind=", "inference=", message)
    return re.sub(r"\b(inference|weights|correction|loss)='([^']*)'", r'\1 = "\2"', renamed)


def _check_seconds(path: str | Path, name: str, value: float, most: float) -> None:
    if not 0 < value <= most:
        raise InvalidInput(
            f"{path}: {name} is a number of seconds above 0 and at most {most:g}, not {value:g}."
        )


def _check_rows(path: str | Path, study: Study) -> None:
    """Refuse a study of columns without an id or a common order of the rows, and the other way
    round.
    """
    if study.psi and study.id is None:
        raise InvalidInput(f"{path}: psi matches rows by an id; name its column with id.")
    if study.id is not None and study.split != "features":
        raise InvalidInput(
            f"{path}: rows are matched by id only with split = 'features'; leave id out."
        )
    if study.same_order and study.split != "features":
        raise InvalidInput(f"{path}: same-order is for split = 'features'; leave it out.")
    if study.same_order and study.id is not None:
        raise InvalidInput(
            f"{path}: id and same-order both pair the rows of parties; leave one out."
        )
    if study.split == "features" and study.id is None and not study.same_order:
        raise InvalidInput(
            f"{path}: no id shows which rows of the parties belong together. Name the column with "
            "the row ids, e.g. id = 'patient'; or, if all parties list the same rows in the same "
            "order, write same-order = true."
        )


def _check_dials(path: str | Path, study: Study) -> None:
    """Refuse neighbours of which neither can reach the other."""
    for one, other in study.dials:
        if (other, one) in study.dials:
            raise InvalidInput(
                f"{path}: dials: of {one} and {other}, one dials the other, not both."
            )
    for index, name in enumerate(study.names):
        for dialled in study.dialled_by(index, study.neighbours(index)):
            party = study.party[dialled]
            if party.address is None:
                raise InvalidInput(
                    f"{path}: {name} and {party.name} are neighbours, and {party.name} has no "
                    "address to dial: see docs/firewalls.md, or choose another network."
                )


def _check_path(path: str | Path, study: Study) -> None:
    """Refuse a [path] whose settings are not valid."""
    asked = study.path
    if asked is None:
        return
    try:
        check_folds(study.split, asked.cv)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error
    given = [name for name in KNOBS if name in study.problem]
    if given:
        raise InvalidInput(
            f"{path}: [path] chooses the {given[0]}: leave {given[0]} out of [problem]."
        )
    if study.split == "features" and asked.strengths is None:
        raise InvalidInput(
            f"{path}: for split = 'features', [path] names the strengths, e.g. strengths = [1.0, "
            "0.1]."
        )
    try:
        whole_number("cv", asked.cv, least=2)
        whole_number("count", asked.count)
        check_strengths(asked.strengths or [1.0])
        check_strength(study.make_problem())
    except InvalidInput as error:
        raise InvalidInput(f"{path}: [path]: {error}") from error


def _check_method(path: str | Path, study: Study) -> None:
    if study.method == "auto":
        return
    try:
        method = find_method(study.method, **study.options)
    except TypeError as error:
        raise InvalidInput(f"{path}: method {study.method!r}: {error}.") from error
    if method.split != study.split:
        raise InvalidInput(
            f"{path}: method {study.method!r} is for data split by {method.split}, not by "
            f"{study.split}."
        )
    problem = study.make_problem()
    if method.family != problem.kind.name or study.split == "users":
        return  # models per user are checked when the graph is known
    try:
        method.check(problem, study.make_network())
    except InvalidProblem as error:
        raise InvalidInput(f"{path}: {in_study_words(str(error))}") from error


def in_study_words(message: str) -> str:
    """The message with lines of a study.toml in place of Python's arguments: intercept = false for
    intercept=False.
    """

    def line(found: re.Match[str]) -> str:
        value = found[2].replace("'", '"')
        if value in ("True", "False"):
            value = value.lower()
        return f"{found[1]} = {value}"

    return re.sub(r"\b([a-z]\w*)=('[^']*'|True|False)", line, message)


def load_party(path: str | Path, without: Sequence[str] = ()) -> tuple[PartyFile, Study]:
    """Read party.toml and its study, with absolute paths, and without these parties if they are
    gone for good.

    Results without them are written to a folder next to that of the whole study.
    """
    path = Path(path)
    with _refusing(path):
        own = _with_absolute_paths(_decoded(path, PartyFile), path.resolve().parent)
    study = load_study(own.study)
    with _refusing(path):
        _check_party(path, own, study)
    if not without:
        return own, study
    if own.party in without:
        raise InvalidInput(f"{path} is the file of {own.party}, which is to be left out.")
    study = study.without(without)
    _check_dials(path, study)
    folder = own.output.with_name(f"{own.output.name}-without-{'-'.join(sorted({*without}))}")
    return msgspec.structs.replace(own, output=folder), study


def _check_party(path: Path, own: PartyFile, study: Study) -> None:
    """Refuse values of party.toml that do not fit the study."""
    if isinstance(own.test, float) and not (0 < own.test < 1 and study.split == "samples"):
        raise InvalidInput(
            f"{path}: test is a file, or with split = 'samples' a share of the rows between 0 and "
            "1, such as 0.3."
        )
    study.index(own.party)
    own.policy.check(path)
    _check_inference_at(path, own, study)
    _check_seconds(path, "patience", own.patience, LONGEST_PATIENCE)


def _with_absolute_paths(own: PartyFile, base: Path) -> PartyFile:
    """The party file with its paths below that folder."""
    places: dict[str, Any] = {
        name: base / getattr(own, name) for name in ("study", "data", "keys", "output")
    }
    if own.checkpoint is not None:
        places["checkpoint"] = None if own.checkpoint == Path() else base / own.checkpoint
    if isinstance(own.test, str):
        places["test"] = str(base / own.test)
    return msgspec.structs.replace(own, **places)


def _check_inference_at(path: Path, own: PartyFile, study: Study) -> None:
    """Refuse clusters or weights at a party that do not fit the standard errors of the study."""
    if (study.inference == "clustered") != (own.cluster is not None):
        raise InvalidInput(
            f"{path}: cluster names the column with the cluster of each row, for inference = "
            '"clustered" in the study.'
        )
    if study.inference is not None and own.weight is not None and study.weights is None:
        raise InvalidInput(
            f"{path}: your rows have weights ({own.weight!r}), and standard errors depend on "
            'their meaning. Write weights = "frequency", "sampling" or "precision" into the study.'
        )


def _decoded(path: str | Path, kind: type[T]) -> T:
    return msgspec.toml.decode(Path(path).read_bytes(), type=kind, dec_hook=_path)


def _path(kind: type, value: Any) -> Any:
    return kind(value)
