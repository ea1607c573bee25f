"""What `solve` returns."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, overload

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.api.inference import Inference
from coterie.data.archives import read_bytes, readable, staged, write_atomically
from coterie.errors import CorruptFile, CoterieError, PartyLost, UnknownName, count
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, digest
from coterie.problems.models import AnyModel, Model, load_model
from coterie.problems.problem import AnyProblem
from coterie.run.bill import Bill
from coterie.run.certificate import Certificate
from coterie.run.statuses import Status
from coterie.run.stopping import Record

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from coterie.run.parties import Hosted

    M = TypeVar("M", bound=Model[Any], default=Any)
else:
    from typing import TypeVar

    M = TypeVar("M")


@dataclass(frozen=True)
class Result(Generic[M]):
    """A model, how far it can be from the best one, what it cost, and how it went."""

    status: Status
    model: M
    """A `LinearModel`, `LowRankModel`, ...: one of `coterie.problems.models`."""
    certificate: Certificate
    bill: Bill
    history: History
    """One row per recorded round: round, seconds, bits (everything sent until then), primal, dual,
    gap.
    """
    network: Network
    explanation: str
    """Which method ran, and why."""
    error: Exception | None = None
    """What went wrong, if the run ended by an error and not by a limit."""
    kept: FloatArray | None = field(default=None, repr=False, compare=False)
    """What the method may use again for another penalty on the same data, if anything; not saved.
    """
    warnings: tuple[str, ...] = ()
    """What went wrong without ending the run: a snapshot that could not be written."""
    parties: Hosted | None = field(default=None, repr=False, compare=False)
    """The parties that fitted it, for what is asked of a fit later; neither saved nor pickled."""
    folder: Path | None = field(default=None, repr=False, compare=False)
    """Where a study wrote it."""

    @property
    def reason(self) -> str:
        """Why the run ended: what went wrong, or what its status means."""
        return self.status.reason if self.error is None else str(self.error)

    @property
    def lost_party(self) -> str | None:
        """The party that was lost, if the run ended because of that."""
        return getattr(self.error, "party", None) or None

    @property
    def rounds(self) -> int:
        """How many rounds were run."""
        return self.bill.rounds

    @property
    def seconds(self) -> float:
        """How long the run took on the clock, until its last certificate."""
        return float(self.history[-1].seconds) if len(self.history) else 0.0

    def inference(
        self,
        kind: str = "model",
        clusters: Any = None,
        level: float = 0.95,
        data: Any = None,
        *,
        weights: str | None = None,
        correction: str | None = None,
        per_sd: bool = False,
    ) -> Inference:
        """Compute standard errors, tests and intervals of the coefficients, for a fit without a
        penalty.

        Parameters
        ----------
        kind : {"model", "robust", "clustered"}, default="model"
            "model" if the likelihood is right, "robust" if rows are independent, "clustered" if
            clusters of rows are.
        clusters : array or list of arrays, optional
            The cluster of every row, as one array or one array per party, for "clustered".
        level : float, default=0.95
            Level of the intervals.
        data : optional
            For a result that was loaded: the data, in the form in which it was fitted.
        weights : {"frequency", "sampling", "precision"}, optional
            What the weights of rows mean: counts of equal rows, inverse probabilities of selection,
            or inverse variances. Needed if some weight is no whole number; else weights are taken
            for counts. Sampling weights have robust errors in place of those of kind "model".
        correction : {"HC0", "HC1", "CR0", "CR1", "CR1S", "CR2"}, optional
            Correction for small samples: HC0 or HC1 for "robust", the others for "clustered". Below
            30 clusters the default is CR2 with Satterthwaite degrees of freedom, or CR1 where
            parties share clusters.
        per_sd : bool, default=False
            Add a column with the coefficients per standard deviation, after prepare="standardise".

        Returns
        -------
        Inference
        """
        # Found by name: to ask agents again, or to make new ones of data, is up to `stats`, which
        # imports results.
        inferring = import_module("coterie.stats.inferring")
        asked = inferring.Question.of(kind, weights, correction, level)
        inferring.check_clusters(kind, clusters)
        found: Inference = inferring.infer(self, asked, clusters, data)
        return found.with_per_sd() if per_sd else found

    @property
    def about(self) -> str:
        """Which problem was solved: loss, penalty, and whether there is an intercept."""
        problem: AnyProblem = self.model.problem
        return problem.kind.report.described(self.certificate.settings["problem"])

    def notes(self) -> list[str]:
        """What is modelled, for every output: the class, the number of events, reference levels and
        units.
        """
        notes, counts = self.model.notes(), self.certificate.counts
        if counts is not None:
            weighted = len(counts) > 1 and sum(counts) != self._rows
            notes.append(f"{self.model.counted(counts)}{' (sums of weights)' if weighted else ''}")
        elif self.model.classes_ is not None:
            notes.append(
                "rows per class: not counted, because no message of this run has them (see "
                "coterie describe)"
            )
        elif getattr(getattr(self.model.problem, "loss", None), "counts", False):
            notes.append(
                "events: not counted, because no message of this run has their sum (see coterie "
                "evaluate)"
            )
        if units := self.model.units():
            notes.append(units)
        return notes

    @property
    def _rows(self) -> int:
        """How many rows all parties have together."""
        rows = [participant.rows for participant in self.certificate.participants]
        return rows[0] if self.certificate.settings["split"] == "features" else sum(rows)

    @property
    def has_intercept(self) -> bool:
        """Whether the model has an intercept."""
        problem: AnyProblem = self.model.problem
        return problem.kind.report.has_intercept(self.certificate.settings["problem"])

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "parties": None}

    def save(self, folder: str | Path) -> Path:
        """Write `model.npz`, `certificate.json` and `run.json` (status, history, bill, network)
        into a folder.
        """
        content = {
            "coterie_run": 1,
            "model": self.certificate.model_digest,
            "status": self.status,
            "explanation": self.explanation,
            "reason": self.reason,
            "error": None if self.error is None else str(self.error),
            "lost_party": self.lost_party,
            "warnings": list(self.warnings),
            "history": {
                name: [_written(value) for value in self.history[name].tolist()]
                for name in History.columns
            },
            "bill": self.bill.state(),
            "network": _network_state(self.network),
            "carried_by": None
            if self.bill.network is self.network
            else _network_state(self.bill.network),
        }
        sealed = {**content, "seal": _seal(content)}
        with staged(folder) as new:
            self.model.save(new / "model.npz")
            self.certificate.save(new / "certificate.json")
            write_atomically(new / "run.json", json.dumps(sealed, allow_nan=False).encode())
        return Path(folder)

    @staticmethod
    def load(folder: str | Path) -> Result[AnyModel]:
        """Read what `save` wrote; files that were changed, or that are of different runs, are
        refused.
        """
        folder = Path(folder)
        model, certificate = (
            load_model(folder / "model.npz"),
            Certificate.load(folder / "certificate.json"),
        )
        text = read_bytes(folder / "run.json")
        with readable(folder / "run.json", "run"):
            content = json.loads(text)
            untouched = content.pop("seal") == _seal(content)
            if content["coterie_run"] != 1:
                raise CorruptFile(
                    f"{folder / 'run.json'} was written by a newer version; update coterie to "
                    "read it."
                )
            columns = [map(float, content["history"][name]) for name in History.columns]
            network = _network_from(content["network"])
            carried_by = content["carried_by"]
            bill = Bill(network if carried_by is None else _network_from(carried_by))
            bill.restore(content["bill"])
            rows = [
                Record(int(row[0]), row[1], int(row[2]), *row[3:])
                for row in zip(*columns, strict=True)
            ]
            error = _error(content["error"], content.get("lost_party"))
            warnings = tuple(map(str, content.get("warnings", ())))
            status, explanation, owner = (
                Status(content["status"]),
                str(content["explanation"]),
                content["model"],
            )
        if not untouched:
            raise CorruptFile(
                f"{folder / 'run.json'} was changed after it was written: its seal does not match."
            )
        if not model.digest() == certificate.model_digest == owner:
            raise CorruptFile(
                f"{folder} has the files of different runs: save one result into one folder."
            )
        found = Result(
            status,
            model,
            certificate,
            bill,
            History(rows),
            network,
            explanation,
            error,
            warnings=warnings,
        )
        if content.get("reason", found.reason) != found.reason:
            raise CorruptFile(
                f"{folder / 'run.json'} contradicts itself: its reason is not that of its status."
            )
        return found

    def __str__(self) -> str:
        lines = [
            f"{self.status}: {self.status.advice}{f' ({self.error})' if self.error else ''}",
            f"Model: {self.about}.",
            *(f"  {note}" for note in self.notes()),
            self.certificate.proves,
            f"{self.explanation}",
            f"{count(self.bill.rounds, 'round')}, {self.bill.total.bits / 8e6:.3g} MB in "
            f"{count(self.bill.total.messages, 'message')}.",
            *(f"Warning: {warning}" for warning in self.warnings),
        ]
        return "\n".join(lines)


class History(Sequence[Record]):
    """One row per recorded round. `history[-1].gap` is a number, `history.gap` (or
    `history["gap"]`) a column.
    """

    columns = tuple(field.name for field in fields(Record))

    def __init__(self, records: Iterable[Record]):
        self._records = tuple(records)

    @overload
    def __getitem__(self, which: int) -> Record: ...
    @overload
    def __getitem__(self, which: slice) -> History: ...
    @overload
    def __getitem__(self, which: str) -> npt.NDArray[Any]: ...
    def __getitem__(self, which: int | slice | str) -> Record | History | npt.NDArray[Any]:
        if isinstance(which, str):
            if which not in self.columns:
                raise UnknownName("column of the history", which, self.columns)
            return np.array([getattr(record, which) for record in self._records])
        return History(self._records[which]) if isinstance(which, slice) else self._records[which]

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        if name not in self.columns:
            raise AttributeError(name)
        return self[name]

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        last = (
            f", the last with gap {self[-1].gap:.3g} after {count(self[-1].round, 'round')}"
            if self
            else ""
        )
        return f"History({len(self)} records{last})"


def _error(text: str | None, lost: str | None) -> CoterieError | None:
    """What went wrong, as a file has it."""
    if text is None:
        return None
    return CoterieError(text) if lost is None else PartyLost(text, lost)


def _seal(content: Mapping[str, Any]) -> str:
    return digest(json.dumps(content, sort_keys=True))


def _written(value: float) -> float | str:
    """A number as JSON has it; what is not finite as text, which `float` reads back."""
    return value if math.isfinite(value) else str(value)


def _network_state(network: Network) -> dict[str, Any]:
    return {
        "agents": network.agents,
        "name": network.name,
        "server": network.server,
        "edges": network.edges.tolist(),
        "weights": sp.triu(network.weights, k=1, format="csr").data.tolist(),
        "positions": None if network.positions is None else network.positions.tolist(),
    }


def _network_from(state: Mapping[str, Any]) -> Network:
    agents, edges = int(state["agents"]), np.array(state["edges"], np.intp).reshape(-1, 2)
    half = sp.coo_array(
        (np.array(state["weights"], float), (edges[:, 0], edges[:, 1])), shape=(agents, agents)
    )
    places = state["positions"]
    weights = sp.csr_array(half + half.T)
    return Network(
        weights, state["name"], state["server"], None if places is None else np.array(places, float)
    )
