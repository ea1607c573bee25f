"""A party's own policy, `[policy]` in party.toml: the limits on what a study may ask of this party,
which its own agent checks.

    [policy]
    minimum-rows = 20                   # refuse to take part with fewer rows; parties with fewer do
                                        not hide others
    budget = 0.33                       # the most numbers that this party sends for each number
                                        that it holds
    methods = ["cocoa", "proximal-2"]   # only these; leave out for all but blocks
    secure-sums = "required"            # refuse a study whose sums are not masked
    minimum-count = 5                   # no sum over fewer rows of this party
    prepare = ["impute", "standardise"] # only these steps of a preparation; leave out for all
    per-party = true                    # show the others summaries of this party's rows alone, and
                                        how well they are predicted

A party that refuses sends its refusal when the parties have connected, before it matches rows or
sends anything about its data. It shows the rule on its own machine only; the others learn that this
party's policy refused, and no more.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from coterie.data.archives import append
from coterie.data.preparation.recipes import STEPS
from coterie.data.summary import TableSummary
from coterie.errors import InvalidInput, PartyLost, Refused, UnknownName
from coterie.methods import METHODS, Method
from coterie.methods.auto.costs import Sizes, first_order
from coterie.numerics.arrays import FloatArray
from coterie.run.disclosure import Case, OfMethod, most_of
from coterie.run.setup import sizes_of
from coterie.stats.choosing import FITS, FOLDS
from coterie.stats.inferring import SUMS
from coterie.stats.information import numbers_of_adjustment
from coterie.study.broadcasts import LIMITS, METHODS_ALLOWED, MINIMUM_COUNT, NUMBERS, POLICIES
from coterie.study.disclosure import candidates, kind_of_errors

if TYPE_CHECKING:
    from coterie.study.session import Session
    from coterie.study.study import Study

SHARE = 1 / 3
"""The most numbers sent for each number held, as in DataSHIELD's nfilter.glm."""
FOLDER = "told"
"""The folder, next to the party's key, that counts the numbers sent, in a file for each study and
purpose.
"""
MARK = 16
"""Bytes of the digest of a message."""
RECORD = struct.Struct(f"<Q{MARK}s")
"""A message that was sent: how many numbers, and its digest."""
HIDDEN = 3
"""Parties with enough rows among which a party's part of a total is hidden."""


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """The limits on what a study may ask of a party."""

    minimum_rows: int = 20
    budget: float | None = None
    """Numbers that this party sends for each number that it holds itself. By default a third if the
    data is split by samples, and no limit otherwise: split by features, every method sends more, as
    its page shows.
    """
    methods: tuple[str, ...] | None = None
    """The methods that may run; None: all but those that send columns, which have to be named."""
    secure_sums: Literal["optional", "required"] = "optional"
    minimum_count: int = 5
    """The least number of rows of this party in a group, bin, category or cluster; smaller ones are
    not sent, unless they are empty.
    """
    prepare: tuple[str, ...] | None = None
    """The steps of a preparation that may be taken; None: all of them, with `minimum_count` for
    categories.
    """
    per_party: bool = False
    """Whether descriptions and evaluations show the others summaries of this party's rows alone."""

    def check(self, path: object) -> None:
        """Refuse rules that are not valid."""
        if self.minimum_rows < 0:
            raise InvalidInput(
                f"{path}: minimum-rows is a number of rows, not {self.minimum_rows}."
            )
        if self.minimum_count < 1:
            raise InvalidInput(
                f"{path}: minimum-count is a number of rows, at least 1, not {self.minimum_count}."
            )
        if self.budget is not None and not self.budget > 0:
            raise InvalidInput(
                f"{path}: budget is a number above 0, numbers sent for each number held; for "
                "none: inf."
            )
        for name in self.methods or ():
            METHODS[name]
        for name in self.prepare or ():
            if name not in STEPS:
                raise InvalidInput(f"{path}: {UnknownName('step of a preparation', name, STEPS)}")

    def objection(self, study: Study, rows: int) -> str | None:
        """The rule that this study breaks, as far as this party can check alone."""
        few = self._too_few_rows(study, rows)
        if few is not None:
            return few
        if self.secure_sums == "required" and not study.has_secure_sums:
            return (
                'secure-sums = "required", but the study has no secure sums (write `secure-sums = '
                "true` into it)"
            )
        preparing = self._forbids_preparing(study)
        if preparing is not None or study.method == "auto":
            return preparing
        return self._forbids(study.method) or None

    def _too_few_rows(self, study: Study, rows: int) -> str | None:
        """Why this party, or a fold of it, has too few rows."""
        fewer = f"fewer than minimum-rows = {self.minimum_rows}"
        if rows < self.minimum_rows:
            return f"the table has {rows} rows, {fewer}"
        # Sums over all rows less sums without a fold are sums over the fold alone.
        if study.path is not None and rows // study.path.cv < self.minimum_rows:
            return f"a fold of [path] has {rows // study.path.cv} rows, {fewer}"
        if study.chooses and rows // FOLDS < self.minimum_rows:
            return (
                f"a fold of the choice among models has {rows // FOLDS} rows, {fewer} (or "
                "write mu into [problem])"
            )
        return None

    def _forbids_preparing(self, study: Study) -> str | None:
        """The step of the study's preparation that this policy forbids."""
        recipes = study.make_preparation()
        if recipes is None or study.split == "features":
            return None
        for step in recipes.steps:
            if self.prepare is not None and step.name not in (*self.prepare, "keep"):
                return f"{step.name!r} in [prepare] is not among prepare = {list(self.prepare)}"
            if step.name == "one-hot" and (step.number or 1) < self.minimum_count:
                fewest = f"categories of fewer rows than minimum-count = {self.minimum_count}"
                return (
                    f"{str(step)!r} in [prepare] names {fewest} (write "
                    f"`one-hot({self.minimum_count})` into the study)"
                )
        return None

    def _forbids(self, name: str) -> str:
        """Why the method of that name must not run; empty if it may."""
        if self.methods is None and METHODS[name].moves_columns:
            return f"{name!r} sends the columns: a policy has to name it, methods = [{name!r}, ...]"
        if self.methods is not None and name not in self.methods:
            return f"{name!r} is not among methods = {list(self.methods)}"
        return ""

    def allowance(self, study: Study, mine: TableSummary) -> float:
        """How many numbers about its own table this party may send; the tables of others do not
        matter.
        """
        share = self.budget
        if share is None:
            share = SHARE if study.split == "samples" else math.inf
        if math.isinf(share):
            return share
        return share * _held(mine)

    def exposes(
        self, study: Study, parts: Sequence[TableSummary], me: int, folds: int = 1
    ) -> str | None:
        """Why secure sums would not hide this party, according to the summaries of all tables.

        A party with few rows, or without any, hides no other. Each of the others can subtract its
        own part of an aggregate: the rest must still be about this party and another one with
        enough rows, in each fold, if there are folds.
        """
        if not study.has_secure_sums or (len(parts) < 3 and self.secure_sums == "optional"):
            return None
        enough = max(self.minimum_rows, 1) * folds
        hiding = [
            part.name for place, part in enumerate(parts) if place == me or part.rows >= enough
        ]
        if len(hiding) >= HIDDEN:
            return None
        among = f" in each of {folds} folds" if folds > 1 else ""
        verb = "is" if len(hiding) == 1 else "are"
        found = f"there {verb} {len(hiding)} ({', '.join(hiding)})"
        return (
            f"secure sums need {HIDDEN} parties with at least minimum-rows = {self.minimum_rows} "
            f"rows{among}, so that without any other one two are left; {found}. If all agree to "
            "show each other their sums, write `secure-sums = false` into the study"
        )

    def allows(
        self,
        study: Study,
        parts: Sequence[TableSummary],
        me: int,
        held: Sequence[TableSummary] | None = None,
        later: bool = False,
    ) -> dict[str, str]:
        """Every method that may run, with the rule that forbids it, or an empty text.

        held   the tables before columns were prepared
        later  for methods that follow any other one that may run
        """
        # Rows are matched now, so there may be fewer than before.
        general = self.objection(study, parts[me].rows)
        if general is None:
            general = self.exposes(study, parts, me, _folds(study))
        if general is not None:
            return dict.fromkeys(candidates(study), general)
        allowance = self.allowance(study, (held or parts)[me])
        needs = dict.fromkeys(candidates(study), 0.0)
        if not math.isinf(allowance):
            needs = _expected(study, parts, me)
        found = self._objections(needs, allowance)
        if not later:
            return found
        before = max((needs[name] for name, why in found.items() if not why), default=0.0)
        return self._objections(needs, allowance, before)

    def _objections(
        self, needs: dict[str, float], allowance: float, before: float = 0.0
    ) -> dict[str, str]:
        """Why each method must not run after that many numbers were sent; empty if it may."""
        return {
            name: self._forbids(name) or _exceeds(name, before + numbers, allowance)
            for name, numbers in needs.items()
        }


def _folds(study: Study) -> int:
    """The folds into which the study deals rows."""
    if study.path is not None:
        return study.path.cv
    return FOLDS if study.chooses else 1


def _expected(study: Study, parts: Sequence[TableSummary], me: int) -> dict[str, float]:
    """How many numbers a party is expected to send with each method, according to its
    declaration.
    """
    problem, sizes = study.make_problem(), sizes_of(parts, study.split, apart=True)
    labels = sorted({label for part in parts for label in part.classes})
    if labels:
        problem = problem.with_classes(np.array(labels))
    case = Case(
        problem,
        study.split,
        parts[me],
        len(parts),
        study.has_secure_sums,
        correction=study.correction or "",
        all_columns=sizes.columns,
    )
    inference = _of_inference(study, case)
    return {
        name: _of_fits(study, method, _of_rounds(method, case, sizes)) + inference
        for name, method in candidates(study).items()
    }


def _of_rounds(method: type[Method[Any, Any]], case: Case, sizes: Sizes) -> float:
    """The numbers of one fit, in the rounds that it is expected to take."""
    plan = method.outlook(case.problem, sizes) or first_order(case.problem, sizes)
    counts = OfMethod.of(method.disclosure, case)
    if counts.round is None:
        # The length of its messages depends on earlier messages.
        return plan.rounds * max(plan.scalars, sizes.rows)
    before = 0 if counts.before is None else counts.before[1]
    return before + plan.rounds * counts.round[1]


def _of_fits(study: Study, method: type[Method[Any, Any]], once: float) -> float:
    """The numbers of all fits that the study asks for, if one fit sends this many."""
    if study.path is not None:
        strengths = 1 if method.keeps_sums else study.path.points
        once *= (study.path.cv + 1) * strengths
    return once * FITS if study.chooses else once


def _of_inference(study: Study, case: Case) -> float:
    """The numbers of standard errors, clusters at several parties not counted."""
    if study.inference is None:
        return 0.0
    kind = kind_of_errors(study)
    known = most_of(SUMS[kind], case) or most_of(SUMS["robust"], case)
    assert known is not None
    numbers = float(known[1])
    # Without a choice in the study, CR2 is used only where budgets allow it.
    if study.correction == "CR2":
        numbers += numbers_of_adjustment(case.width * max(case.outputs - 1, 1))
    return numbers


def _exceeds(name: str, numbers: float, allowance: float) -> str:
    """Why a party does not send that many numbers with a method; empty if it may."""
    if numbers <= allowance:
        return ""
    return f"{name} would send about {_too_many(numbers, allowance)}"


class Account:
    """Count the numbers that a party sends about its own rows, and stop the party at its budget.

    A file on disk keeps the count. It does not begin at 0 again if a party restarts, or has other
    rows, most of which may be those of the first run. A message that a party repeats bit by bit,
    after the same aggregates, discloses nothing new, and counts once. `context` is a digest of the
    aggregates.
    """

    def __init__(self, party: str, allowance: float, file: Path | None = None):
        self.party, self.allowance, self.sent = party, allowance, 0
        self.context = b""
        self._file = file
        self._known: set[bytes] = set()
        if file is not None:
            for numbers, mark in _records(file):
                self.sent += numbers
                self._known.add(mark)

    @staticmethod
    def of(session: Session, mine: TableSummary) -> Account:
        """Return the account of this party for the operation of this session, with these rows."""
        own, study = session.own, session.study
        allowance = own.policy.allowance(study, mine)
        file = own.keys / FOLDER / f"{study.run_id}-{session.purpose}"
        return Account(own.party, allowance, None if math.isinf(allowance) else file)

    def count(self, message: FloatArray) -> None:
        """Count a message that this party is about to send; refuse it if it exceeds the budget."""
        if math.isinf(self.allowance):
            self._spend(message.size)
            return
        content = self.context + np.ascontiguousarray(message).tobytes()
        mark = hashlib.blake2b(content, digest_size=MARK).digest()
        if mark in self._known:
            return
        self._spend(message.size)
        self._known.add(mark)
        if self._file is not None:
            append(self._file, RECORD.pack(message.size, mark))

    def _spend(self, numbers: int) -> None:
        """Count this many numbers, which this party is about to send."""
        if self.sent + numbers > self.allowance:
            many = _too_many(self.sent + numbers, self.allowance)
            kept = ""
            if self._file is not None:
                kept = f" {self._file} keeps the count: remove it to begin again at 0."
            raise PartyLost(
                f"{self.party}'s policy: with the next message it is {many}.{kept}",
                self.party,
                _refusal([self.party]),
            )
        self.sent += numbers

    def receive(self, total: FloatArray) -> None:
        """Note an aggregate that this party received: after another aggregate, the same numbers are
        another message.
        """
        if math.isinf(self.allowance):
            return
        self.context = hashlib.blake2b(self.context + total.tobytes(), digest_size=MARK).digest()


def _records(file: Path) -> list[tuple[int, bytes]]:
    """The messages sent before. A record that was not written to its end belongs to a message that
    was never sent.
    """
    content = file.read_bytes() if file.exists() else b""
    whole = len(content) // RECORD.size * RECORD.size
    return list(RECORD.iter_unpack(content[:whole]))


def agree_to_begin(session: Session, rows: int, *, empty: bool = False) -> None:
    """End the operation at all parties if the policy of one refuses, before any party sends
    anything about its data.

    `empty`: a party may come without rows.
    """
    policy = session.own.policy
    mine = policy.objection(session.study, policy.minimum_rows if empty and not rows else rows)
    _refuse(session, session.all_gather(mine is None, POLICIES, bool), mine)


def agree_on_methods(
    session: Session, parts: Sequence[TableSummary], held: Sequence[TableSummary] | None = None
) -> tuple[set[str], set[str]]:
    """The methods that all policies allow, and those that may follow another one."""
    policy, study = session.own.policy, session.study
    found = policy.allows(study, parts, session.me, held)
    after = policy.allows(study, parts, session.me, held, later=True)
    mine = _permitted(found), _permitted(after)
    received = session.all_gather(mine, METHODS_ALLOWED, tuple[list[str], list[str]])
    allowed = [one for one, _ in received]
    _refuse(session, [bool(one) for one in allowed], "; ".join(dict.fromkeys(found.values())))
    common = set.intersection(*map(set, allowed))
    if not common:
        each = "; ".join(
            f"{name} allows {', '.join(one)}"
            for name, one in zip(study.names, allowed, strict=True)
        )
        raise Refused(f"no method is allowed by all policies: {each}.")
    return common, set.intersection(*(set(later) for _, later in received))


def _permitted(objections: dict[str, str]) -> list[str]:
    return [name for name, objection in objections.items() if not objection]


def agree_on_limits(
    session: Session,
    parts: Sequence[TableSummary],
    held: TableSummary,
    page: float = math.inf,
) -> tuple[int, float, float]:
    """Agree on the limits of descriptions and evaluations.

    The result is the least number of rows of a party in a group, the number of numbers that every
    budget and page allows, and the number that the shortest `page` allows. `held` is the table that
    this party's budget is about.
    """
    policy = session.own.policy
    objection = policy.exposes(session.study, parts, session.me)
    mine = (
        objection is None,
        policy.minimum_count,
        policy.allowance(session.study, held),
        page,
    )
    told = session.all_gather(mine, LIMITS, tuple[bool, MINIMUM_COUNT, NUMBERS, NUMBERS])
    agreed, minimums, allowances, pages = zip(*told, strict=True)
    _refuse(session, agreed, objection)
    return int(max(minimums)), min(*allowances, *pages), min(pages)


def _refuse(session: Session, agreed: Iterable[bool], mine: str | None) -> None:
    against = [name for name, one in zip(session.study.names, agreed, strict=True) if not one]
    if session.own.party in against:
        raise Refused(
            f"{session.own.party}'s policy: {mine}. Nothing of the data was sent. Change the "
            "study, or [policy] in party.toml.",
            _refusal(against),
        )
    if against:
        raise Refused(_refusal(against))


def _refusal(parties: Sequence[str]) -> str:
    names = " and ".join(f"{party}'s" for party in parties)
    return f"refused by {names} policy"


def _too_many(sent: float, allowance: float) -> str:
    return f"{sent:.0f} numbers in this run, more than the {allowance:.0f} that its budget allows"


def _held(part: TableSummary) -> int:
    """Numbers in a table, with its labels and offsets; zeros of a sparse one do not count."""
    if part.outputs is None:
        return part.nonzeros
    per_row = math.prod(part.outputs) + len(part.row_values)
    return part.nonzeros + part.rows * per_row
