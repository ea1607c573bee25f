"""Write the page of an operation: the messages that a party will send, and their recipients.

A page lists the declarations of the operation's protocols. `discloses` declares protocols next to
the code that sends (see `run.disclosure`). `study.broadcasts` declares the messages to all parties.
Methods declare their own disclosure. The `Guard` is made of the same lists, and refuses every other
collective.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from coterie.api.crosstab import CrossTabulate
from coterie.api.describe import Describe
from coterie.api.evaluate import Evaluate
from coterie.api.verify import Verify
from coterie.data import Table
from coterie.errors import InvalidInput, InvalidProblem
from coterie.methods import METHODS, Method
from coterie.methods.auto.costs import LINK, Link, Sizes
from coterie.numerics.acceleration import ADVANCES
from coterie.problems.problem import AnyProblem
from coterie.run.disclosure import (
    Case,
    Counts,
    Disclosure,
    Guard,
    Most,
    OfMethod,
    Protocols,
    added,
    applying,
    most_of,
)
from coterie.run.finish import introduced_again
from coterie.run.parties import AnyOperation
from coterie.run.site import NO_RULES, Rules
from coterie.stats.choosing import FITS, FOLDS, sums_of_choice
from coterie.stats.fitting import Fit
from coterie.stats.folds import mean_loss, rows_outside_folds
from coterie.stats.inferring import QUERIES, SUMS, allows_numbers
from coterie.stats.preparation import fitted
from coterie.stats.preparing import Prepare
from coterie.stats.strengths import grid_of_strengths
from coterie.study import first_screen
from coterie.study.align import MATCHING
from coterie.study.broadcasts import BROADCASTS, MEETING, Broadcast
from coterie.study.dry_run import FACTOR, Asked, Estimate, case_of, dry_run, needs_classes
from coterie.study.first_screen import Row
from coterie.study.prediction import ObjectiveOfParts, Predict

if TYPE_CHECKING:
    from coterie.study.study import Study

OPERATIONS: tuple[type[AnyOperation], ...] = (
    Describe,
    CrossTabulate,
    Evaluate,
    Predict,
    ObjectiveOfParts,
    Verify,
)
"""Operations other than a fit. Each declares the messages that it sends."""
MESSAGES = (*MEETING, *MATCHING, *BROADCASTS)
"""All messages outside of sums, except the queries of operations."""
COMMANDS = {"fit": "agent"}
"""Commands whose names differ from those of their operations, by operation."""
COLLUSION = "If all other parties collude: your own messages too"
SUMS_ONLY = f"the sums over all parties, and the model. {COLLUSION}"
KEPT = {
    "features": "rows, column names, ids in the clear, the coefficients of your own columns.",
    "samples": "rows, labels, dual vectors. The model is the same for all parties.",
    "users": "rows, labels.",
    "shared": (
        "rows, labels, dual vectors, your deviation from the common model. The common model is "
        "the same for all."
    ),
}
"""Data that a party never sends, by split or by kind of problem."""
SHAPES = [
    (rows, columns) for rows in (100, 10_000, 1_000_000) for columns in (10, 300, 5_000, 100_000)
]
"""Sizes of data (rows, columns) for which a page evaluates the choice of "auto": before the parties
meet, the size of their data is unknown.
"""
FAST = Link(1e-4, 1e10)
ATTEMPTS = 10
"""Largest number of times that parties deal folds, for the counts of a page. One is usual."""
FIRST_AND_LAST = 2
"""Certificates of a fit in addition to one after each round."""


@dataclass(frozen=True)
class Known:
    """Values from which this party computes the counts of a page before it meets the others."""

    case: Case
    estimates: Mapping[Callable[..., Any], Estimate] = field(default_factory=dict)
    """Estimates of a dry run, for protocols whose counts depend on the data."""
    allowance: float = math.inf
    """Number of numbers that the party's budget allows."""
    columns: int | None = None
    """Number of columns after a preparation, for the counts of rounds; None if it is unknown, or if
    there is no preparation.
    """


@dataclass(frozen=True)
class Section:
    """A part of a page: the messages of one step."""

    title: str
    protocols: Protocols = ()
    """Declared protocols."""
    lines: tuple[str, ...] = ()
    """Sentences about messages that protocols do not declare, such as messages outside of sums."""
    methods: tuple[type[Method[Any, Any]], ...] = ()
    """Methods that may run, in the section about rounds."""
    times: int = 1
    """Largest number of times that a party sends these messages."""
    every_fit: bool = False
    """Whether every fit of a path, or of a choice, sends these messages."""
    counts: Most | None = None
    """Function for the counts, where the study decides them, and not the protocols alone."""

    def text(self, known: Known) -> list[str]:
        """Return the lines of the page; an empty list if no declaration applies."""
        lines = [*self.lines, *map(sentence, applying(self.protocols, known.case))]
        if not lines:
            return []
        return ["", f"{self.title}:", *(f"  - {line}" for line in lines), *self._counted(known)]

    def _counted(self, known: Known) -> list[str]:
        estimate = self._estimate(known)
        if estimate is not None:
            alone = in_words(estimate.alone)
            most = f"at most {estimate.shown:,.0f} numbers"
            return [f"  On your table alone: {alone}. With the other parties: {most}."]
        counts = self._declared(known)
        if counts is None or not counts[0]:
            return []
        often = f", {self.times:,} times" if self.times > 1 else ""
        return [f"  At most: {in_words(counts)}{often}."]

    def most(self, known: Known) -> float | None:
        """Return the largest number of numbers in one fit or one operation; None if unknown."""
        estimate = self._estimate(known)
        if estimate is not None:
            return estimate.shown
        counts = self._declared(known)
        return None if counts is None else float(self.times * counts[1])

    def unbounded(self, known: Known) -> list[str]:
        """Return the declared reasons why its numbers have no largest number."""
        if self.most(known) is not None:
            return []
        return [one.unbounded for one in applying(self.protocols, known.case) if one.unbounded]

    def _estimate(self, known: Known) -> Estimate | None:
        found = [known.estimates[one] for one in self.protocols if one in known.estimates]
        return found[0] if found else None

    def _declared(self, known: Known) -> Counts | None:
        """Return the declared counts of its protocols. Queries send no numbers in sums."""
        if self.counts is not None:
            return self.counts(known.case)
        asked = [one for one in self.protocols if sends_sums(one) and applying([one], known.case)]
        return added(most_of(one, known.case) for one in asked)


@dataclass(frozen=True)
class Rounds(Section):
    """The section of a page about the rounds of a fit."""

    max_rounds: int = 0

    def text(self, known: Known) -> list[str]:
        lines = []
        for method in self.methods:
            prefix = f"{method.name}: " if len(self.methods) > 1 else ""
            lines += [f"  - {prefix}{line}" for line in _of_method(method)]
            counts = OfMethod.of(method.disclosure, known.case)
            if counts.round is not None:
                lines.append(f"  - {prefix}{_of_rounds(counts)}")
        return ["", f"{self.title}:", *lines, f"  Rounds: at most {self.max_rounds:,}."]

    def most(self, known: Known) -> float | None:
        found = [OfMethod.of(one.disclosure, known.case) for one in self.methods]
        before = added(one.before for one in found)
        rounds = [one.longest_round for one in found]
        longest = [counts[1] for counts in rounds if counts is not None]
        if before is None or len(longest) < len(rounds):
            return None
        return float(before[1] + self.max_rounds * max(longest))

    def unbounded(self, known: Known) -> list[str]:
        reasons = []
        for method in self.methods:
            counts = OfMethod.of(method.disclosure, known.case)
            if counts.before is None or counts.longest_round is None:
                reasons.append(method.disclosure.unbounded)
        return [reason for reason in reasons if reason]


def sends_sums(function: Callable[..., Any]) -> bool:
    """Whether the function is a protocol. A query sends values outside of sums."""
    return inspect.isgeneratorfunction(function)


def _of_rounds(counts: OfMethod) -> str:
    """Describe how much a method sends in a round, and before the first one."""
    assert counts.round is not None
    text = f"at most {in_words(counts.round)} in a round"
    if counts.sometimes is not None and counts.sometimes[0]:
        text += f", in some rounds {in_words(counts.sometimes)} more"
    if counts.before is not None and counts.before[0]:
        text += f"; before the first round {in_words(counts.before)}"
    return text


def in_words(counts: Counts) -> str:
    """Format counts for a page."""
    collectives, numbers = counts
    return f"{collectives:,} {'message' if collectives == 1 else 'messages'}, {numbers:,} numbers"


def sentence(one: Disclosure) -> str:
    """Describe the message, and what a recipient can compute from it."""
    return f"{one.sent}. A recipient can compute: {one.learned}" if one.learned else one.sent


def messages(study: Study, operation: str) -> list[Broadcast]:
    """Return the messages that a party of the study sends outside of sums for one operation."""
    return [one for one in MESSAGES if one.is_sent(study, operation)]


def _sentences(study: Study, operation: str) -> tuple[str, ...]:
    return tuple(one.sentence for one in messages(study, operation))


def candidates(study: Study) -> dict[str, type[Method]]:
    """Return the methods that may run, by name.

    They are the method that the study names, or those that `auto` can choose or change to.
    """
    if study.method != "auto":
        return {study.method: METHODS[study.method]}
    problem = study.make_problem()
    fitting = {
        name: one
        for name, one in METHODS.items()
        if (one.split, one.family) == (study.split, problem.kind.name)
        and not (study.has_secure_sums and one.one_sender)
        and _may_be_chosen(one, problem, study)
    }
    return {
        name: one
        for name, one in fitting.items()
        if study.labels_shared or not one.discloses_labels
    } or fitting


def _may_be_chosen(method: type[Method[Any, Any]], problem: AnyProblem, study: Study) -> bool:
    """Whether "auto" may run the method.

    "auto" may choose the method for data of one of the sizes in `SHAPES`, or continue with it when
    another method stalls.
    """
    network = study.make_network()
    try:
        able, same = method().adapted(problem)
        able.check(same, network)
    except InvalidProblem:
        return False
    if method.name in problem.kind.exact_methods.get(study.split, ()):
        return True
    agents = len(study.party)
    return any(
        method.score(
            problem,
            network,
            Sizes(rows, columns, int(rows * columns * share), agents, link, apart=True),
        )
        for rows, columns in SHAPES
        for share in (0.01, 1.0)
        for link in (LINK, FAST)
    )


def check_labels(study: Study) -> None:
    """Refuse methods that disclose the labels to all parties, unless the study allows that.

    A study allows it with `labels-shared = true`.
    """
    telling = [name for name, one in candidates(study).items() if one.discloses_labels]
    if telling and not study.labels_shared:
        raise InvalidInput(
            f"{' and '.join(filter(None, [', '.join(telling[:-1]), telling[-1]]))}: from the "
            "messages of "
            f"{'this method' if len(telling) == 1 else 'these methods'} and from certificates all "
            "parties can compute "
            "the labels. If all agree to that, write `labels-shared = true` into the study; if "
            "not, do not run it."
        )


def sections(study: Study, operation: str) -> Iterator[Section]:
    """Yield the sections of one operation's page, one for each step of sending."""
    kind = study.make_problem().kind
    if operation == "fit":
        yield from _of_fit(study)
    else:
        for one in _operations(study, operation):
            title = f"Sent to {one.name}, by `coterie {one.name}`"
            yield Section(title, one.discloses, _sentences(study, operation))
    if operation == Verify.name:
        yield Section("Sent to verify, once more", (*kind.proof.introduces, *kind.proof.proves))


def _of_fit(study: Study) -> Iterator[Section]:
    kind = study.make_problem().kind
    certificates = study.max_rounds + FIRST_AND_LAST
    each: dict[str, Any] = {"every_fit": True}
    yield Section("Sent once, to all parties", Fit.discloses, _sentences(study, "fit"))
    yield Section("Sent once, as part of a sum", kind.proof.introduces, **each)
    yield from _preparation(study)
    yield _rounds(study)
    if study.acceleration != "none":
        title = "Sent for acceleration, where the method allows it"
        yield Section(title, ADVANCES, times=study.max_rounds, **each)
    yield Section("Sent for every certificate", kind.proof.proves, times=certificates, **each)
    yield from _path(study)
    yield from _choice(study)
    yield from _inference(study)


def fits_of(study: Study) -> int:
    """Return the number of fits of the study."""
    if study.path is not None:
        return study.path.fits
    return FITS if study.chooses else 1


def _operations(study: Study, operation: str) -> list[type[AnyOperation]]:
    """Return the operations of that name that support the split of the study."""
    return [
        one for one in OPERATIONS if one.name.split()[0] == operation and study.split in one.splits
    ]


def guard_of(study: Study, operation: str) -> Guard:
    """Return a guard that refuses every message that the operation's page does not list."""
    listed = [*sections(study, operation)]
    protocols = [one for section in listed for one in section.protocols]
    methods = [one for section in listed for one in section.methods]
    labels = [label for one in messages(study, operation) for label in one.labels]
    tabulates = study.split == "samples" and any(
        one.tabulates for one in _operations(study, operation)
    )
    return Guard(operation, protocols, methods, labels, tabulates=tabulates)


def known_of(
    study: Study, table: Table, operation: str, asked: Asked | None, rules: Rules
) -> Known:
    """Compute the values for an operation's counts before the party meets the others."""
    if operation == "fit":
        return _known_of_fit(study, table, rules)
    if operation == Verify.name:
        # Parties send the sums of a fit once more, without rounds. No budget limits these sums.
        return _known_of_fit(study, table, Rules(rules.minimum))
    if asked is None:
        return Known(case_of(study, table))
    case = case_of(study, asked.table)
    operations = _operations(study, operation)
    protocols = [one for found in operations for one in found.discloses if sends_sums(one)]
    dependent = [one for one in protocols if applying([one], case) and most_of(one, case) is None]
    if not dependent:
        return Known(case)
    estimate = dry_run(asked, study)
    return Known(case, dict.fromkeys(dependent, estimate))


def _known_of_fit(study: Study, table: Table, rules: Rules) -> Known:
    recipes = study.make_preparation()
    if recipes is None:
        return Known(case_of(study, table), allowance=rules.allowance)
    asked = Prepare(recipes, study.split)
    estimate = dry_run(Asked(asked, table, Rules(rules.minimum)), study)
    if estimate.found is None:
        return Known(case_of(study, table), {fitted: estimate}, rules.allowance)
    columns = estimate.found.parties.sites[0].data.d
    if study.split == "samples" and any(step.name == "one-hot" for step in recipes.steps):
        columns = FACTOR * columns
    return Known(case_of(study, table, columns), {fitted: estimate}, rules.allowance, columns)


def disclosure(
    study: Study,
    party: str,
    table: Table,
    operation: str | None = None,
    asked: Asked | None = None,
    rules: Rules = NO_RULES,
) -> str:
    """Write the page of a study: the party's messages, and what their recipients can compute.

    Parameters
    ----------
    study : Study
        Operations and settings on which the parties agreed.
    party : str
        Name of the party.
    table : Table
        Rows of the party, in the form for a fit.
    operation : str, optional
        Operation that the page describes; by default all operations.
    asked : Asked, optional
        The operation with the party's rows, for the counts.
    rules : Rules, optional
        Limits of the party's policy, for the counts of a preparation.

    Returns
    -------
    str
        Text of the page.
    """
    operations = ("fit", *dict.fromkeys(one.name.split()[0] for one in OPERATIONS))
    first = operation or "fit"
    known = known_of(study, table, first, asked, rules)
    lines = _header(study, party, table, first, known)
    for one in operations if operation is None else (operation,):
        counted = known if one == first else known_of(study, table, one, None, rules)
        lines += _of_operation(study, one, counted)
    return "\n".join([*lines, *_footer()])


def _of_operation(study: Study, operation: str, known: Known) -> list[str]:
    lines = [line for section in sections(study, operation) for line in section.text(known)]
    most = numbers_on_page(study, operation, known)
    if not lines:
        return []
    if most is None:
        return [*lines, *_without_total(study, operation, known)]
    counted = f"In all to {operation}, in sums and rounds: at most {most:,.0f} numbers"
    if known.columns is not None:
        counted += f", for {known.columns:,} columns after the preparation"
    if operation == "fit" and needs_classes(study.make_problem()):
        counted += f", for {len(known.case.problem.loss.classes):,} classes"
    return [*lines, "", f"{counted}."]


def _without_total(study: Study, operation: str, known: Known) -> list[str]:
    """Write why the page states no total; no line if no declaration has a reason."""
    reasons = [
        reason for section in sections(study, operation) for reason in section.unbounded(known)
    ]
    found = [f"No total is stated: {reason}." for reason in dict.fromkeys(reasons)]
    return ["", *found] if found else []


def numbers_on_page(study: Study, operation: str, known: Known) -> float | None:
    """Return the largest number of numbers that this party sends for an operation.

    The result is at most the party's budget; None if the number is unknown and there is no budget.
    """
    fits = fits_of(study)
    total = 0.0
    for section in sections(study, operation):
        most = section.most(known)
        if most is None:
            return known.allowance if math.isfinite(known.allowance) else None
        total += fits * most if section.every_fit else most
    return min(total, known.allowance)


def _header(study: Study, party: str, table: Table, operation: str, known: Known) -> list[str]:
    if study.messages == "users":
        route = "neighbours in the graph receive more, see below"
    elif study.carrying().server:
        route = (
            f"{study.names[0]} adds all messages"
            if study.index(party)
            else "this party adds all messages, and sees each of them"
        )
    else:
        route = f"over the network ({study.carrying().describe()})"
    problem = study.make_problem()
    most = numbers_on_page(study, operation, known)
    command = COMMANDS.get(operation, operation)
    worst = worst_case(study, operation, known)
    return [
        f"Study {study.name!r}, run {study.run_id}: what {party} sends for `coterie {command}`",
        "",
        *first_screen.sentences(study, operation, worst, most, _kept(study)),
        "",
        f"To: {first_screen.recipients(study, party)}; {route}.",
        f"Your table: {table.n} rows, {table.d} "
        f"columns{', the labels' if table.y is not None else ''}.",
        f"Model: {problem.kind.report.described(problem.settings())}.",
        "",
        *first_screen.table(list(_rows(study, party, operation, known))),
        "",
        "In full:",
    ]


def _kept(study: Study) -> str:
    """Describe data that no message contains, and name a method that moves columns."""
    kept = KEPT.get(study.make_problem().kind.name, KEPT[study.split])
    moving = [name for name, one in candidates(study).items() if one.moves_columns]
    if not moving:
        return kept
    return f"{kept} But `{moving[0]}` sends your columns, multiplied by a secret rotation."


def _rows(study: Study, party: str, operation: str, known: Known) -> Iterator[Row]:
    """Yield the rows of the first screen, one for each step that sends messages."""
    to_labels = operation in ("evaluate", "predict") and study.split == "features"
    to = "the label party" if to_labels else first_screen.receivers_of_sums(study, party)
    for section in sections(study, operation):
        if isinstance(section, Rounds):
            for method in section.methods:
                yield Row(f"every round, {method.name}", to, _learned(study, [method.disclosure]))
        elif section.text(known):
            declared = applying(section.protocols, known.case)
            asked = [one for one in section.protocols if sends_sums(one)]
            receivers = to if applying(asked, known.case) else "all parties"
            yield Row(_step(section, known), receivers, _learned(study, declared))


def _step(section: Section, known: Known) -> str:
    most = section.most(known)
    title = section.title.removeprefix("Sent ")
    return f"{title}: at most {most:,.0f} numbers" if most else title


def _learned(study: Study, declared: Sequence[Disclosure]) -> str:
    """Describe what a recipient can compute, without repetitions."""
    found = [
        one.secure if one.secure and first_screen.hides(study) else one.learned for one in declared
    ]
    return "; ".join(dict.fromkeys(filter(None, found))) or "what you send, and no more"


def worst_case(study: Study, operation: str, known: Known) -> str:
    """Describe what the party that receives most can compute from one operation."""
    if operation in ("fit", "verify"):
        return most_curious(study)
    declared = [
        one
        for section in sections(study, operation)
        for one in applying(section.protocols, known.case)
    ]
    if not first_screen.hides(study):
        return _learned(study, declared)
    # Secure sums do not hide some disclosures, such as names.
    plain = dict.fromkeys(one.learned for one in declared if one.learned and not one.secure)
    return f"{'; '.join(['the sums over all parties', *plain])}. {COLLUSION}"


def _footer() -> list[str]:
    return [
        "",
        (
            "Limitations: no differential privacy, and no protection from false data. See "
            "docs/threat-model.md."
        ),
    ]


def most_curious(study: Study) -> str:
    """Describe in one line what the party that receives most can compute of your data."""
    if study.split == "features":
        return (
            "all labels, and after as many rounds as you have columns, your columns up to a "
            "rotation"
        )
    if study.messages == "users":
        return "your labels, about as accurately as your model predicts them"
    if first_screen.hides(study):
        return SUMS_ONLY
    return (
        "each of your messages. From as many numbers as your data contains, your rows and labels "
        "can be reconstructed"
    )


def _preparation(study: Study) -> Iterator[Section]:
    recipes = study.make_preparation()
    if recipes is None:
        return
    if study.split == "features":
        yield Section("Prepared by you, without a message", lines=(str(recipes),))
    else:
        yield Section(f"Sent once to prepare the columns ({recipes})", Prepare.discloses)


def _rounds(study: Study) -> Section:
    methods = tuple(candidates(study).values())
    if study.method != "auto":
        title = f"Sent in every round ({study.method})"
    else:
        later = (
            ", and perhaps by another of them if the run stalls"
            if study.messages == "samples"
            else ""
        )
        title = (
            f"Sent in every round, by the method that is chosen when the parties have met{later}, "
            "one of"
        )
    return Rounds(title, methods=methods, max_rounds=study.max_rounds, every_fit=True)


def _of_method(method: type[Method]) -> list[str]:
    one = method.disclosure
    return [
        line for line in (one.sent, one.setup, f"A recipient can compute: {one.learned}") if line
    ]


def _path(study: Study) -> Iterator[Section]:
    """Yield the sections about cross-validation."""
    asked = study.path
    if asked is None:
        return
    kind = study.make_problem().kind
    title = (
        f"Sent to choose the strength, [path] with {asked.points} strengths and {asked.cv} folds"
    )
    again = (
        f"all of the above (rounds and certificates) {asked.fits} times: for every strength with "
        "all rows, and "
        "without the rows of each fold. The difference of two fits is about the rows of one fold"
    )
    yield Section(title, lines=(again,))
    if asked.strengths is None:
        protocols = (grid_of_strengths, *kind.local.finds_strengths)
        yield Section("Sent once, for the grid of strengths", protocols)
    title = "Sent to deal the folds, if labels are classes"
    yield Section(title, (rows_outside_folds,), counts=partial(_of_folds, asked.cv))
    title = "Sent for every strength and fold, about held-out rows"
    yield Section(title, (mean_loss,), times=asked.points * asked.cv)


def _choice(study: Study) -> Iterator[Section]:
    """Yield the sections about a choice among models."""
    if not study.chooses:
        return
    again = (
        f"all of the above (rounds and certificates) about {FITS} times, without the rows of one "
        "fold each. The "
        "difference of two fits is about the rows of one fold"
    )
    title = (
        f"Sent to choose among models with {FOLDS} folds (write mu into [problem], and nothing is "
        "chosen)"
    )
    yield Section(title, (sums_of_choice,), (again,), counts=_of_choice)


def _of_folds(cv: int, case: Case) -> Counts:
    """Return the counts of dealing folds: until each fold leaves rows of every class."""
    return ATTEMPTS, ATTEMPTS * cv * max(case.outputs, 2)


def _of_choice(case: Case) -> Counts:
    """Return the counts of a choice among models.

    Parties send the sums of columns, the counts of folds and, for each fit, its scores and up to
    three comparisons.
    """
    folds = _of_folds(FOLDS, case)
    return 1 + folds[0] + 4 * FITS, 3 + case.columns + folds[1] + 4 * 3 * FITS


def _inference(study: Study) -> Iterator[Section]:
    """Yield the sections about standard errors."""
    if study.inference is None:
        return
    kind = kind_of_errors(study)
    adjusts = kind == "clustered" and study.correction in (None, "CR2")
    asked = [
        query
        for query in QUERIES
        if kind == "clustered" and (query is not allows_numbers or adjusts)
    ]
    title = f'Sent for standard errors (inference = "{study.inference}"), once, at the fitted model'
    yield Section(title, (*asked, introduced_again, SUMS[kind]))


def kind_of_errors(study: Study) -> str:
    """Return the kind of standard errors that the study requests.

    With sampling weights, robust standard errors replace model-based ones.
    """
    return (
        "robust"
        if study.weights == "sampling" and study.inference == "model"
        else str(study.inference)
    )
