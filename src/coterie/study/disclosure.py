"""What a party is about to send, and to whom: shown before the first message, made of what the methods state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coterie.api.crosstab import CrossTabulate
from coterie.api.describe import Describe
from coterie.api.evaluate import Evaluate
from coterie.data import Table
from coterie.errors import InvalidInput
from coterie.methods import METHODS, Method
from coterie.run.parties import Operation
from coterie.stats.choosing import FITS, FOLDS
from coterie.stats.inferring import QUERIES, SUMS, has_room
from coterie.study.broadcasts import sent_to_all
from coterie.study.prediction import ObjectiveOfParts, Predict

if TYPE_CHECKING:
    from coterie.study.study import Study

_PROOF = {
    "features": "its own partial scores, added to those of the others: all learn the score of every row; and from the "
    "label party the slope of the loss at every row. From the two, everybody can compute the labels",
    "samples": "a weighted sum of its own rows, one number per column, and sums of the losses of its own rows",
    "users": "its own model and its own weights in the graph, to each neighbour; its own loss and gap, added up",
}
OPERATIONS: tuple[type[Operation[Any]], ...] = (Describe, CrossTabulate, Evaluate, Predict, ObjectiveOfParts)
"""What parties can do together besides a fit; each states itself what it tells."""
_NOT_SENT = {
    "features": "rows, column names, ids in the clear, the coefficients of its own columns.",
    "samples": "rows, labels, dual vectors. The model is the same for all parties.",
    "users": "rows, labels.",
    "shared": "rows, labels, dual vectors, how this party deviates from the common model, which is the same for all.",
}


def _listed(told: list[str]) -> list[str]:
    return [f"  - {text}" for text in told]


def _told_for(operation: type[Operation[Any]], study: Study) -> list[str]:
    """What an operation sends to all parties, and what they add up."""
    matching = _ids(study) if operation.matches else []
    return [*matching, *sent_to_all(study, operation.name), *operation.page(study.split)]


def _ids(study: Study) -> list[str]:
    """What is sent to match rows."""
    if study.id is None or study.split != "features":
        return []
    how = "keyed hashes of the ids: parties can test guesses, outsiders cannot"
    if study.psi:
        how = (
            "encrypted ids for a private set intersection: ids that both sides have become known, and a parent can "
            "test a suspected id by adding it to its own"
        )
    return [f"{how} (column {study.id!r}); in the end all know which ids are common to all"]


def candidates(study: Study) -> dict[str, type[Method]]:
    """The methods that may run: the one that the study names, or those that `auto` can choose from or change to."""
    if study.method != "auto":
        return {study.method: METHODS[study.method]}
    family = study.make_problem().kind.name
    fitting = {
        name: one
        for name, one in METHODS.items()
        if (one.split, one.family) == (study.split, family) and not (study.has_secure_sums and one.one_speaker)
    }
    return {name: one for name, one in fitting.items() if study.labels_shared or not one.tells_labels} or fitting


def check_labels(study: Study) -> None:
    """Refuse methods that tell everybody the labels, unless the study says that the parties want that."""
    telling = [name for name, one in candidates(study).items() if one.tells_labels]
    if telling and not study.labels_shared:
        raise InvalidInput(
            f"{' and '.join(filter(None, [', '.join(telling[:-1]), telling[-1]]))}: from the messages of "
            f"{'this method' if len(telling) == 1 else 'these methods'} and from certificates all parties can compute "
            "the labels. If all agree to that, write `labels-shared = true` into the study; if not, do not run it."
        )


def disclosure(study: Study, party: str, table: Table) -> str:
    """One page: what will be sent, what will not, and who hears it."""
    network, me = study.carrying(), study.index(party)
    names = study.names
    if study.messages == "users":
        hears, route = [name for name in names if name != party], "neighbours in the graph hear more, see below"
    elif network.server:
        hears = [names[0]] if me else [name for name in names if name != party]
        route = f"{names[0]} adds up what all send" if me else "this party adds up what all send, and sees each message"
    else:
        hears = [names[j] for j in network.neighbours(me)]
        route = f"over the network ({network.describe()})"
    problem = study.make_problem()
    lines = [
        f"Study {study.name!r}, run {study.run_id}: what {party} sends",
        "",
        f"To: {', '.join(hears)}; {route}.",
        f"Here: {table.n} rows, {table.d} columns{', the labels' if table.y is not None else ''}.",
        f"Model: {problem.kind.report.described(problem.settings())}.",
        "",
        "Sent once, to all parties:",
        *_listed([*_ids(study), *sent_to_all(study, "fit")]),
        "",
        "Sent once, added up:",
    ]
    lines += _listed(list(problem.kind.proof.introduction(problem, study.messages)))
    if table.offset is not None and problem.intercept and study.split == "samples":
        lines += ["  - sums of the offsets, of their squares, and of slopes where all coefficients are 0"]
    if study.split == "features":
        lines += ["  - one number about the columns' units: the sum of 1 / (sum of squares) over the columns here"]
    lines += [*_preparation(study), "", *_rounds(study)]
    if study.acceleration != "none":
        lines += ["", "Sent for acceleration, where the method allows it:"]
        lines += ["  - sums of squares and products of its own changes of State, a few numbers, added up"]
    lines += ["", "Sent for every certificate:", f"  - {_PROOF[study.messages]}"]
    lines += [*_path(study), *_choice(study), *_inference(study)]
    for operation in OPERATIONS:
        if study.split in operation.splits:
            lines += ["", f"Sent to {operation.name}, by `coterie {operation.name}`:"]
            lines += _listed(_told_for(operation, study))
    lines += ["", "Sent to verify, by `coterie verify`:"]
    lines += _listed([*_ids(study), *sent_to_all(study, "verify"), "once more what a certificate needs"])
    lines += [
        "",
        f"Not sent: {_NOT_SENT.get(problem.kind.name, _NOT_SENT[study.split])}",
        f"The most curious party could compute: {most_curious(study)}.",
        "There is no differential privacy here, and no protection from parties that lie: see docs/threat-model.md.",
    ]
    return "\n".join(lines)


_STEPS = {
    "min-max": "the smallest and the largest value of each column{}",
    "spline": "for every column counts of its values in bins with at least minimum-count rows of it, added up: "
    "quantiles, about one percent exact where rows are many",
    "one-hot": "a hash of each category of a column with at least minimum-count rows here, by which a guess can be "
    "confirmed; its rows, added up; and the names of those that are not rare",
}


def _preparation(study: Study) -> list[str]:
    """What the numbers of a preparation tell."""
    recipes = study.make_preparation()
    if recipes is None:
        return []
    if study.split == "features":
        return ["", f"Prepared here, without a message: {recipes}"]
    lines = ["", f"Sent once to prepare the columns ({recipes}):"]
    lines += ["  - for every column whether it is text, and, added up: rows with a value, missing values, sum, squares"]
    hidden = ", of which only those of all parties become known" if study.has_secure_sums else ""
    names = dict.fromkeys(step.name for step in recipes.steps)
    return lines + [f"  - {_STEPS[name].format(hidden)}" for name in names if name in _STEPS]


def _choice(study: Study) -> list[str]:
    """What a choice among models sends."""
    if not study.chooses:
        return []
    return [
        "",
        f"Sent to choose among models with {FOLDS} folds (write mu into [problem], and nothing is chosen):",
        "  - its sums of all columns and of all squares, added up",
        "  - whether it has enough rows of every class outside each fold, added up",
        f"  - all of the above (rounds and certificates) about {FITS} times, without the rows of one fold each. The "
        "difference of two of them is about the rows of one fold",
        "  - for each, of the rows that were kept back: the share of right answers and the mean loss, and squares of "
        "what two models differ by in these, added up",
    ]


def _path(study: Study) -> list[str]:
    """What cross-validation sends."""
    asked = study.path
    if asked is None:
        return []
    lines = ["", f"Sent to choose the strength, [path] with {asked.points} strengths and {asked.cv} folds:"]
    if asked.strengths is None:
        lines += ["  - for every column its sum weighted by the slope of the best constant, added up"]
    if _has_classes(study):
        alone = "from the label party, whether the folds have all classes"
        counts = "whether it has enough rows of every class outside each fold, added up"
        lines += [f"  - {alone if study.split == 'features' else counts}"]
    loss = "the loss of its own rows and their number, added up"
    if study.split == "features":
        loss = "its own partial scores of those rows, added up, and from the label party their loss"
    return [
        *lines,
        f"  - all of the above (rounds and certificates) {asked.fits} times: for every strength with all rows, and "
        "without the rows of each fold. The difference of two of them is about the rows of one fold",
        f"  - for every strength and fold, of the rows that were kept back: {loss}",
    ]


def _has_classes(study: Study) -> bool:
    problem = study.make_problem()
    return bool(problem.kind.data.classification(problem))


def _inference(study: Study) -> list[str]:
    """What standard errors send."""
    if study.inference is None:
        return []
    kind = "robust" if study.weights == "sampling" and study.inference == "model" else study.inference
    sums = SUMS[kind].disclosure
    adjusts = kind == "clustered" and study.correction in (None, "CR2")
    asked = [query.disclosure.sent for query in QUERIES if query is not has_room or adjusts]
    lines = ["", f'Sent for standard errors (inference = "{study.inference}"), once, at the fitted model:']
    if kind == "clustered":
        lines += _listed(asked)
    lines += _listed([f"added up: {sums.sent}", f"who sees it can compute: {sums.learned}"])
    if adjusts:
        lines += [
            '  - with fewer than 30 clusters, each at one party, or correction = "CR2": for every coefficient a '
            "matrix of products of its clusters' Hessians, added up over its clusters. Of a single cluster here, "
            "it is a function of that cluster's Hessian"
        ]
    return lines


def most_curious(study: Study) -> str:
    """What the party that hears most can compute of this party's data, in one line."""
    if study.split == "features":
        return "all labels, and after as many rounds as this party has columns, these up to a rotation"
    if study.messages == "users":
        return "how the rows here are labelled, as well as the model from here knows it"
    if study.has_secure_sums and len(study.party) > 2:
        return "totals over all parties, and the model. If all others put together what they know, what this party said"
    return "what this party says in every round; if that is as many numbers as its rows hold, the rows and labels"


def _rounds(study: Study) -> list[str]:
    told = candidates(study)
    if study.method != "auto":
        return [f"Sent in every round ({study.method}):", *(f"  - {text}" for text in _told(told[study.method]))]
    later = ", and perhaps by another of them later in the run" if study.messages == "samples" else ""
    lines = [f"Sent in every round, by the method that is chosen when the parties have met{later}, one of:"]
    return lines + [f"  - {name}: {text}" for name, method in told.items() for text in _told(method)]


def _told(method: type[Method]) -> list[str]:
    facts = method.disclosure
    return list(filter(None, (facts.sent, facts.setup, f"who sees it can compute: {facts.learned}")))
