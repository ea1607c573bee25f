"""What a party is about to send, and to whom: each operation's page consists of the declarations of
its protocols.

`discloses` declares them next to the code that sends (see `run.disclosure`), `study.broadcasts` the
messages to all parties, and methods state their own. The same lists make the `Guard`, which refuses
every other collective.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.api.crosstab import CrossTabulate
from coterie.api.describe import Describe
from coterie.api.evaluate import Evaluate
from coterie.api.verify import Verify
from coterie.data import Table
from coterie.data.summary import TableSummary
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
    OfMethod,
    Protocols,
    added,
    applying,
    most_of,
)
from coterie.run.finish import introduced_again
from coterie.run.parties import Operation
from coterie.run.setup import with_offset
from coterie.stats.choosing import FITS, FOLDS, sums_of_choice
from coterie.stats.fitting import Fit
from coterie.stats.folds import mean_loss, rows_outside_folds
from coterie.stats.inferring import QUERIES, SUMS, has_room
from coterie.stats.preparing import Prepare
from coterie.stats.strengths import grid_of_strengths
from coterie.study.align import MATCHING
from coterie.study.broadcasts import BROADCASTS, MEETING, Broadcast
from coterie.study.prediction import ObjectiveOfParts, Predict

if TYPE_CHECKING:
    from coterie.study.study import Study

OPERATIONS: tuple[type[Operation[Any]], ...] = (
    Describe,
    CrossTabulate,
    Evaluate,
    Predict,
    ObjectiveOfParts,
    Verify,
)
"""What parties can do together besides a fit; each declares what it sends."""
MESSAGES = (*MEETING, *MATCHING, *BROADCASTS)
"""All that is sent outside of sums, without the queries of operations."""
KEPT = {
    "features": "rows, column names, ids in the clear, the coefficients of your own columns.",
    "samples": "rows, labels, dual vectors. The model is the same for all parties.",
    "users": "rows, labels.",
    "shared": (
        "rows, labels, dual vectors, your deviation from the common model. The common model is "
        "the same for all."
    ),
}
"""What a party never sends."""
SHAPES = [
    (rows, columns) for rows in (100, 10_000, 1_000_000) for columns in (10, 300, 5_000, 100_000)
]
"""Sizes of data for which "auto" is asked, before the parties have met, which methods it may
choose.
"""
FAST = Link(1e-4, 1e10)


@dataclass(frozen=True)
class Section:
    """A part of a page: what is sent at one step."""

    title: str
    protocols: Protocols = ()
    """Declared protocols."""
    lines: tuple[str, ...] = ()
    """What is declared in another way: messages outside of sums."""
    methods: tuple[type[Method[Any, Any]], ...] = ()
    """Of the rounds: the methods that may run."""

    def text(self, case: Case, counted: bool) -> list[str]:
        """The lines of the page, none if nothing applies; `counted`: with the numbers of
        messages.
        """
        lines = [*self.lines, *map(sentence, applying(self.protocols, case))]
        if not lines:
            return []
        listed = [f"  - {line}" for line in lines]
        counts = self._counts(case) if counted else None
        if counts is not None:
            listed.append(f"  At most: {in_words(counts)}.")
        return ["", f"{self.title}:", *listed]

    def _counts(self, case: Case) -> Counts | None:
        used = [one for one in self.protocols if applying([one], case)]
        return added(most_of(one, case) for one in used) if used else None


@dataclass(frozen=True)
class Rounds(Section):
    """The part of a page about the rounds of a fit."""

    max_rounds: int = 0

    def text(self, case: Case, counted: bool) -> list[str]:
        lines = []
        for method in self.methods:
            prefix = f"{method.name}: " if len(self.methods) > 1 else ""
            lines += [f"  - {prefix}{line}" for line in _of_method(method)]
            counts = OfMethod.of(method.disclosure, case)
            if counted and counts.round is not None:
                lines.append(f"  - {prefix}{_of_rounds(counts)}")
        return ["", f"{self.title}:", *lines, f"  Rounds: at most {self.max_rounds:,}."]


def _of_rounds(counts: OfMethod) -> str:
    """How much a method sends in a round, and before the first one."""
    assert counts.round is not None
    text = f"at most {in_words(counts.round)} in a round"
    if counts.sometimes is not None and counts.sometimes[0]:
        text += f", in some rounds {in_words(counts.sometimes)} more"
    if counts.before is not None and counts.before[0]:
        text += f"; before the first round {in_words(counts.before)}"
    return text


def in_words(counts: Counts) -> str:
    """Counts as a page has them."""
    collectives, numbers = counts
    return f"{collectives:,} {'message' if collectives == 1 else 'messages'}, {numbers:,} numbers"


def sentence(one: Disclosure) -> str:
    """What is sent, and what a recipient can compute."""
    return f"{one.sent}. A recipient can compute: {one.learned}" if one.learned else one.sent


def messages(study: Study, operation: str) -> list[Broadcast]:
    """What a party of that study sends outside of sums for one operation."""
    return [one for one in MESSAGES if one.is_sent(study, operation)]


def _sentences(study: Study, operation: str) -> tuple[str, ...]:
    return tuple(one.sentence for one in messages(study, operation))


def candidates(study: Study) -> dict[str, type[Method]]:
    """The methods that may run: the one that the study names, or those that `auto` can choose from
    or change to.
    """
    if study.method != "auto":
        return {study.method: METHODS[study.method]}
    problem = study.make_problem()
    fitting = {
        name: one
        for name, one in METHODS.items()
        if (one.split, one.family) == (study.split, problem.kind.name)
        and not (study.has_secure_sums and one.one_speaker)
        and _may_be_chosen(one, problem, study)
    }
    return {
        name: one for name, one in fitting.items() if study.labels_shared or not one.tells_labels
    } or fitting


def _may_be_chosen(method: type[Method[Any, Any]], problem: AnyProblem, study: Study) -> bool:
    """Whether "auto" would choose the method for data of some size, or go on with it when another
    one stalls.
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
    """Refuse methods that tell everybody the labels, unless the study says that the parties want
    that.
    """
    telling = [name for name, one in candidates(study).items() if one.tells_labels]
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
    """What a party of that study sends for one operation, step by step."""
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
    yield Section("Sent once, to all parties", Fit.discloses, _sentences(study, "fit"))
    yield Section("Sent once, as part of a sum", kind.proof.introduces)
    yield from _preparation(study)
    yield _rounds(study)
    if study.acceleration != "none":
        yield Section("Sent for acceleration, where the method allows it", ADVANCES)
    yield Section("Sent for every certificate", kind.proof.proves)
    yield from _path(study)
    yield from _choice(study)
    yield from _inference(study)


def _operations(study: Study, operation: str) -> list[type[Operation[Any]]]:
    """What the parties of that study may do together under that name."""
    return [
        one for one in OPERATIONS if one.name.split()[0] == operation and study.split in one.splits
    ]


def guard_of(study: Study, operation: str) -> Guard:
    """Refuses everything that the page of that operation does not list."""
    listed = [*sections(study, operation)]
    protocols = [one for section in listed for one in section.protocols]
    methods = [one for section in listed for one in section.methods]
    labels = [label for one in messages(study, operation) for label in one.labels]
    return Guard(operation, protocols, methods, labels)


def case_of(study: Study, table: Table) -> Case:
    """What decides which declarations apply to this party."""
    problem = study.make_problem()
    kind = problem.kind
    card = TableSummary.of(
        table, classification=bool(kind.data.classification(problem)), names=False
    )
    if _needs_classes(problem):
        # Those of all parties are known once they have met: until then, two of them stand for all.
        problem = problem.with_classes(np.array(["one", "other"]))
    recipes = study.make_preparation()
    steps = () if recipes is None else tuple(dict.fromkeys(step.name for step in recipes.steps))
    secure = study.has_secure_sums
    problem, correction = with_offset(problem, [card]), study.correction or ""
    return Case(problem, study.split, card, len(study.party), secure, steps, correction)


def _needs_classes(problem: AnyProblem) -> bool:
    """Whether the lengths of messages depend on classes that the study does not list."""
    return getattr(getattr(problem, "loss", None), "classes", ()) is None


def disclosure(study: Study, party: str, table: Table) -> str:
    """The page of a study: what the party sends for each operation, to whom, and what recipients
    can compute.
    """
    case, problem = case_of(study, table), study.make_problem()
    lines = [*_header(study, party, table)]
    # How long messages are follows from the columns after the preparation, and from the classes of
    # all parties.
    counted = study.prepare is None and not _needs_classes(problem)
    for operation in ("fit", *dict.fromkeys(one.name.split()[0] for one in OPERATIONS)):
        text = [
            line for section in sections(study, operation) for line in section.text(case, counted)
        ]
        lines += text
    return "\n".join([*lines, *_footer(study)])


def _header(study: Study, party: str, table: Table) -> list[str]:
    network, me, names = study.carrying(), study.index(party), study.names
    if study.messages == "users":
        hears, route = (
            [name for name in names if name != party],
            "neighbours in the graph receive more, see below",
        )
    elif network.server:
        hears = [names[0]] if me else [name for name in names if name != party]
        route = (
            f"{names[0]} adds all messages"
            if me
            else "this party adds all messages, and sees each of them"
        )
    else:
        hears = [names[j] for j in network.neighbours(me)]
        route = f"over the network ({network.describe()})"
    problem = study.make_problem()
    return [
        f"Study {study.name!r}, run {study.run_id}: what {party} sends",
        "",
        f"To: {', '.join(hears)}; {route}.",
        f"Here: {table.n} rows, {table.d} columns{', the labels' if table.y is not None else ''}.",
        f"Model: {problem.kind.report.described(problem.settings())}.",
    ]


def _footer(study: Study) -> list[str]:
    kind = study.make_problem().kind
    return [
        "",
        f"Not sent: {KEPT.get(kind.name, KEPT[study.split])}",
        f"The most curious party could compute: {most_curious(study)}.",
        (
            "There is no differential privacy here, and no protection from parties that lie: see "
            "docs/threat-model.md."
        ),
    ]


def most_curious(study: Study) -> str:
    """What the party that receives most can compute of your data, in one line."""
    if study.split == "features":
        return (
            "all labels, and after as many rounds as you have columns, your columns up to a "
            "rotation"
        )
    if study.messages == "users":
        return "your labels, about as accurately as your model predicts them"
    if study.has_secure_sums and len(study.party) > 2:
        return (
            "the sums over all parties, and the model. If all other parties collude: your own "
            "messages too"
        )
    return (
        "each of your messages. From as many numbers as your data contains, your rows and labels "
        "can be reconstructed"
    )


def _preparation(study: Study) -> Iterator[Section]:
    recipes = study.make_preparation()
    if recipes is None:
        return
    if study.split == "features":
        yield Section("Prepared here, without a message", lines=(str(recipes),))
    else:
        yield Section(f"Sent once to prepare the columns ({recipes})", Prepare.discloses)


def _rounds(study: Study) -> Section:
    methods = tuple(candidates(study).values())
    if study.method != "auto":
        title = f"Sent in every round ({study.method})"
    else:
        later = (
            ", and perhaps by another of them later in the run"
            if study.messages == "samples"
            else ""
        )
        title = (
            f"Sent in every round, by the method that is chosen when the parties have met{later}, "
            "one of"
        )
    return Rounds(title, methods=methods, max_rounds=study.max_rounds)


def _of_method(method: type[Method]) -> list[str]:
    one = method.disclosure
    return [
        line for line in (one.sent, one.setup, f"A recipient can compute: {one.learned}") if line
    ]


def _path(study: Study) -> Iterator[Section]:
    """What cross-validation sends."""
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
    yield Section("Sent to deal the folds, if labels are classes", (rows_outside_folds,))
    yield Section(
        "Sent for every strength and fold, about the rows that were kept back", (mean_loss,)
    )


def _choice(study: Study) -> Iterator[Section]:
    """What a choice among models sends."""
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
    yield Section(title, (sums_of_choice,), (again,))


def _inference(study: Study) -> Iterator[Section]:
    """What standard errors send."""
    if study.inference is None:
        return
    kind = kind_of_errors(study)
    adjusts = kind == "clustered" and study.correction in (None, "CR2")
    asked = [
        query for query in QUERIES if kind == "clustered" and (query is not has_room or adjusts)
    ]
    title = f'Sent for standard errors (inference = "{study.inference}"), once, at the fitted model'
    yield Section(title, (*asked, introduced_again, SUMS[kind]))


def kind_of_errors(study: Study) -> str:
    """The standard errors that the study asks for; with weights of a sample, model-based ones are
    robust.
    """
    return (
        "robust"
        if study.weights == "sampling" and study.inference == "model"
        else str(study.inference)
    )
