"""What a party is about to send, and to whom: shown before the first message, and for every method in one place."""

from __future__ import annotations

from coterie.data import Table
from coterie.errors import InvalidInput
from coterie.methods import METHODS
from coterie.peers.study import Study

__all__ = ["MESSAGES", "check_labels", "disclosure"]

_PROOF = {
    "features": "the own partial scores, added to those of the others: all learn the score of every row; and from the "
    "label party the slope of the loss at every row. From the two, everybody can compute the labels",
    "samples": "a weighted sum of the own rows, one number per column, and sums of the losses of the own rows",
    "users": "the own model and the own weights in the graph, to each neighbour; one's own loss and gap, added up",
}
_NOT_SENT = {
    "features": "rows, column names, ids in the clear, the coefficients of the own columns.",
    "samples": "rows, labels, dual vectors. The model is the same for all parties.",
    "users": "rows, labels.",
}
_ROWS = "a weighted sum of the own rows, one number per column, added to those of the others"
_LABELS = "ALL LABELS AND WEIGHTS, once, to all parties; then"

MESSAGES = {
    "cocoa": _ROWS,
    "consensus": _ROWS,
    "dfw-subspace": "products of the own gradient with a few vectors, a number per column or class, added up",
    "dfw-trace": "products of the own gradient with one vector, a number per column or class, added up",
    "dada": "the own model, the own loss and degree, to each neighbour, and to everybody who asks to learn the graph; "
    "and to those it asked, how often their models are wrong on the own rows",
    "diffusion": f"{_LABELS} the partial scores of a few rows, mixed",
    "dynamic-diffusion": f"{_LABELS} the partial scores of all rows, mixed",
    "global": "the gradient of the own loss, one number per base predictor, added up, and losses along a line",
    "gram": "XᵀX and Xᵀy of the own rows, one number per pair of columns, added up, once",
    "graph-cp": "its copy of the dual, one number per row, as it is, to its neighbours",
    "interior-point": "the gradient and the curvature XᵀDX of the own rows, added up",
    "lin-consensus": _ROWS,
    "local": "nothing but when an agent woke up",
    "naive-dfw": "the own gradient, one number per column and class, added up",
    "newton": "the gradient and the curvature XᵀDX of the own rows, added up",
    "perso-linear": "as dada: the own model, one number per column",
    "proximal-1": _ROWS,
    "proximal-2": _ROWS,
    "pvrd2": f"{_LABELS} the partial scores of a few rows, mixed",
    "relay": "by how much the own rows move the model, a number per column, not added to that of others",
    "sva": "the leading singular vectors of the own gradient, added up",
    "tree": "the change of its partial scores, one number per row, added up along the tree; the dual comes back",
    "vrd2": f"{_LABELS} the partial scores of a few rows, mixed",
}
"""What a round's messages are, by method; docs/disclosure.md says what can be learned from them."""

_SETUP = {
    "graph-cp": "before the first round the number of neighbours; about every tenth round five sums of squares, "
    "added up; in the paper's variant also what tree sends before the first round",
    "tree": "before the first round a few products of the own columns with known random vectors, one number per row, "
    "added up: with one column this is the column",
}
"""What some methods send beside the messages of their rounds."""

_TELL_LABELS = ("diffusion", "dynamic-diffusion", "pvrd2", "vrd2")


def check_labels(method: str, study: Study) -> None:
    """Refuse a method that tells everybody the labels, unless the study says that the parties want that."""
    if method in _TELL_LABELS and not study.labels_shared:
        raise InvalidInput(
            f"method {method!r} tells all parties the labels. If all agree, write `labels-shared = true` into the "
            "study; if not, use graph-cp or tree."
        )


def disclosure(study: Study, party: str, table: Table, method: str | None = None) -> str:
    """One page: what will be sent, what will not, and who hears it."""
    network, me = study.carrying(), study.index(party)
    names = study.names
    if study.split == "users":
        hears, route = [name for name in names if name != party], "neighbours in the graph hear more, see below"
    elif network.server:
        hears = [names[0]] if me else [name for name in names if name != party]
        route = f"{names[0]} adds up what all send" if me else "this party adds up what all send, and sees each message"
    else:
        hears = [names[j] for j in network.neighbours(me)]
        route = f"over the network ({network.describe()})"
    chosen = method or study.method
    problem = study.make_problem()
    lines = [
        f"Study {study.name!r}, run {study.run_id}: what {party} sends",
        "",
        f"To: {', '.join(hears)}; {route}.",
        f"Here: {table.n} rows, {table.d} columns{', the labels' if table.y is not None else ''}.",
        "",
        "Sent once, to all parties:",
        "  - the numbers of rows, columns and non-zeros, the type of numbers, whether there are labels, the classes",
        "  - a SHA-256 digest of the data, and in the end one of the own model; both go into the certificate",
    ]
    if study.id is not None:
        how = (
            "encrypted ids for a private set intersection: ids that both sides have become known, and a parent can "
            "test a suspected id by adding it to its own"
            if study.psi
            else "keyed hashes of the ids: parties can test guesses, outsiders cannot"
        )
        lines.append(f"  - {how} (column {study.id!r}); in the end all know which ids are common to all")
    if study.split == "users":
        lines += ["  - for stumps, the least and the largest value of each column"]
        lines += ["  - the number of rows, and the loss of the zero model, added up"]
    else:
        lines += ["  - the sum of the labels' squares and losses at w = 0, and of the squares of all numbers here"]
    if study.split == "samples" and problem.family == "linear":
        sums = "its sum, and its sum" if problem.intercept else "its sum"
        lines += [f"  - for every column {sums} weighted by the slope at w = 0: means, and means per class"]
        if not problem.penalty.coercive:
            lines += ["  - for every column the sum of its squares"]
    if study.split == "features":
        lines += ["  - one number about the columns' units: the sum of 1 / (sum of squares) over the columns here"]
    lines += ["", *_rounds(chosen, study)]
    if study.acceleration != "none":
        lines += ["", "Sent for acceleration, where the method allows it:"]
        lines += ["  - sums of squares and products of the own changes of State, a few numbers, added up"]
    lines += ["", "Sent for every certificate:", f"  - {_PROOF[study.split]}"]
    if study.split == "features":
        lines += ["", "Sent to predict:"]
        lines += [
            "  - ids as above, whether there are labels here, the number of rows, the own partial scores, added up"
        ]
    lines += ["", "Sent to verify, by `coterie verify`:"]
    lines += [
        "  - ids and numbers of rows as above, the numbers of the own certificate and a digest of it, what is wrong "
        "with the own files; then once more what a certificate needs"
    ]
    lines += [
        "",
        f"Not sent: {_NOT_SENT[study.split]}",
        "This is neither differential privacy nor secure aggregation: see docs/disclosure.md.",
    ]
    return "\n".join(lines)


def _rounds(chosen: str, study: Study) -> list[str]:
    if chosen != "auto":
        return [f"Sent in every round ({chosen}):", *(f"  - {message}" for message in _messages(chosen))]
    family = study.make_problem().family
    names = [
        name
        for name, entry in METHODS.items()
        if (entry.split, entry.family) == (study.split, family) and (study.labels_shared or name not in _TELL_LABELS)
    ]
    lines = ["Sent in every round, by the method that is chosen when the parties have met, one of:"]
    return lines + [f"  - {name}: {message}" for name in names for message in _messages(name)]


def _messages(name: str) -> list[str]:
    return [
        MESSAGES.get(name, "not described: it is an extension's, so ask who wrote it"),
        *([_SETUP[name]] if name in _SETUP else []),
    ]
