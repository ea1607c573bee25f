"""The result of a fit: model, certificate, bill, history, and the files of all of these."""

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
from coterie.run.bill import Bill, format_bits
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
    """The result of `solve`.

    Attributes
    ----------
    status : Status
        How the run ended. `status.advice` says what to do next.
    model : LinearModel, LowRankModel, ...
        The fitted model, one of `coterie.problems.models`.
    certificate : Certificate
        The proof of how far the objective can be from the best one.
    bill : Bill
        The communication cost: messages, numbers and bits, per agent, collective and purpose.
    history : History
        One row per recorded round: round, seconds, bits (everything sent until then), primal, dual,
        gap.
    network : Network
        The network of the agents.
    explanation : str
        Which method ran, and why.
    error : Exception or None
        The error that ended the run, if it did not end by a limit or its certificate.
    warnings : tuple of str
        Problems that did not end the run.

    Examples
    --------
    >>> import coterie as co, numpy as np
    >>> X = np.random.default_rng(0).standard_normal((40, 2))
    >>> result = co.solve(co.Problem("squared", "l2", 0.1), (X, X.sum(axis=1)), agents=4)
    >>> result.status, result.rounds, bool(result.certificate.relative_gap <= 1e-6)
    (<Status.OPTIMAL: 'optimal'>, 1, True)
    """

    status: Status
    model: M
    certificate: Certificate
    bill: Bill
    history: History
    network: Network
    explanation: str
    error: Exception | None = None
    kept: FloatArray | None = field(default=None, repr=False, compare=False)
    """Numbers that the method may use again for another penalty on the same data; not saved."""
    warnings: tuple[str, ...] = ()
    parties: Hosted | None = field(default=None, repr=False, compare=False)
    """The parties that fitted the model, for later operations; neither saved nor pickled."""
    folder: Path | None = field(default=None, repr=False, compare=False)
    """The folder into which a study wrote the result."""

    @property
    def reason(self) -> str:
        """Why the run ended: its error, or the meaning of its status."""
        if self.error is not None:
            return str(self.error)
        return self.status.reason

    @property
    def lost_party(self) -> str | None:
        """The party that was lost, if the run ended because of that."""
        return getattr(self.error, "party", None) or None

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return self.bill.rounds

    @property
    def seconds(self) -> float:
        """The seconds from the start of the run to its last certificate."""
        if not len(self.history):
            return 0.0
        return float(self.history[-1].seconds)

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
            The meaning of the weights of rows: counts of equal rows, inverse probabilities of
            selection, or inverse variances. Needed if some weight is no whole number; else weights
            are counts. Sampling weights have robust errors in place of those of kind "model".
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
        # Imported by name, because `stats`, which computes standard errors, imports results.
        inferring = import_module("coterie.stats.inferring")
        asked = inferring.Question.of(kind, weights, correction, level)
        inferring.check_clusters(kind, clusters)
        found: Inference = inferring.infer(self, asked, clusters, data)
        if per_sd:
            return found.with_per_sd()
        return found

    @property
    def about(self) -> str:
        """Description of the problem: loss, penalty, and whether there is an intercept."""
        problem: AnyProblem = self.model.problem
        return problem.kind.report.described(self.certificate.settings["problem"])

    def notes(self) -> list[str]:
        """List notes for every output: the modelled class, the number of events, reference levels
        and units.
        """
        notes = self.model.notes()
        counts = self._note_on_counts()
        if counts is not None:
            notes.append(counts)
        units = self.model.units()
        if units:
            notes.append(units)
        return notes

    def _note_on_counts(self) -> str | None:
        """Write how many rows each class has, or how many events there are."""
        counts = self.certificate.counts
        if counts is not None:
            note = self.model.counted(counts)
            if len(counts) > 1 and sum(counts) != self._rows:
                note = f"{note} (sums of weights)"
            return str(note)
        if self.model.classes_ is not None:
            return (
                "rows per class: not counted, because no message of this run has them (see "
                "coterie describe)"
            )
        if getattr(getattr(self.model.problem, "loss", None), "counts", False):
            return (
                "events: not counted, because no message of this run has their sum (see coterie "
                "evaluate)"
            )
        return None

    @property
    def _rows(self) -> int:
        """The number of rows that all parties have together."""
        rows = [participant.rows for participant in self.certificate.participants]
        if self.certificate.settings["split"] == "features":
            return rows[0]
        return sum(rows)

    @property
    def has_intercept(self) -> bool:
        """Whether the model has an intercept."""
        problem: AnyProblem = self.model.problem
        return problem.kind.report.has_intercept(self.certificate.settings["problem"])

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "parties": None}

    def save(self, folder: str | Path) -> Path:
        """Write `model.npz`, `certificate.json` and `run.json` (status, history, bill, network).

        Parameters
        ----------
        folder : str or Path
            The folder for the files; it is made if it does not exist.

        Returns
        -------
        Path
            The folder.
        """
        error = None
        if self.error is not None:
            error = str(self.error)
        carried_by = None
        if self.bill.network is not self.network:
            carried_by = _network_state(self.bill.network)
        content = {
            "coterie_run": 1,
            "model": self.certificate.model_digest,
            "status": self.status,
            "explanation": self.explanation,
            "reason": self.reason,
            "error": error,
            "lost_party": self.lost_party,
            "warnings": list(self.warnings),
            "history": {name: _as_json(self.history[name]) for name in History.columns},
            "bill": self.bill.state(),
            "network": _network_state(self.network),
            "carried_by": carried_by,
        }
        sealed = {**content, "seal": _seal(content)}
        with staged(folder) as new:
            self.model.save(new / "model.npz")
            self.certificate.save(new / "certificate.json")
            write_atomically(new / "run.json", json.dumps(sealed, allow_nan=False).encode())
        return Path(folder)

    @staticmethod
    def load(folder: str | Path) -> Result[AnyModel]:
        """Read a result that `save` wrote.

        Parameters
        ----------
        folder : str or Path
            The folder with the files.

        Returns
        -------
        Result

        Raises
        ------
        CorruptFile
            If a file was changed after it was written, or the files are of different runs.
        """
        folder = Path(folder)
        file = folder / "run.json"
        model = load_model(folder / "model.npz")
        certificate = Certificate.load(folder / "certificate.json")
        text = read_bytes(file)
        with readable(file, "run"):
            content = json.loads(text)
            untouched = content.pop("seal") == _seal(content)
            if content["coterie_run"] != 1:
                raise CorruptFile(
                    f"{file} was written by a newer version; update coterie to read it."
                )
            found = _result(content, model, certificate)
            owner = content["model"]
        if not untouched:
            raise CorruptFile(f"{file} was changed after it was written: its seal does not match.")
        if not model.digest() == certificate.model_digest == owner:
            raise CorruptFile(
                f"{folder} has the files of different runs: save one result into one folder."
            )
        if content.get("reason", found.reason) != found.reason:
            raise CorruptFile(f"{file} contradicts itself: its reason is not that of its status.")
        if content.get("lost_party", found.lost_party) != found.lost_party:
            raise CorruptFile(f"{file} contradicts itself: no error names the lost party.")
        return found

    def __str__(self) -> str:
        status = f"{self.status}: {self.status.advice}"
        if self.error:
            status = f"{status} ({self.error})"
        lines = [status, f"Model: {self.about}."]
        for note in self.notes():
            lines.append(f"  {note}")
        lines += [self.certificate.proves, self.explanation]
        total = self.bill.total
        sent = f"{format_bits(total.bits)} in {count(total.messages, 'message')}"
        lines.append(f"{count(self.bill.rounds, 'round')}, {sent}.")
        for warning in self.warnings:
            lines.append(f"Warning: {warning}")
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
        if isinstance(which, slice):
            return History(self._records[which])
        return self._records[which]

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        if name not in self.columns:
            raise AttributeError(name)
        return self[name]

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        text = f"{len(self)} records"
        if self:
            last = self[-1]
            text = f"{text}, the last with gap {last.gap:.3g} after {count(last.round, 'round')}"
        return f"History({text})"


def _result(content: Mapping[str, Any], model: AnyModel, certificate: Certificate) -> Result:
    """Make a result of a model, a certificate and the content of run.json."""
    columns = [map(float, content["history"][name]) for name in History.columns]
    records = [
        Record(int(row[0]), row[1], int(row[2]), *row[3:]) for row in zip(*columns, strict=True)
    ]
    network = _network_from(content["network"])
    carried_by = network
    if content["carried_by"] is not None:
        carried_by = _network_from(content["carried_by"])
    bill = Bill(carried_by)
    bill.restore(content["bill"])
    return Result(
        Status(content["status"]),
        model,
        certificate,
        bill,
        History(records),
        network,
        str(content["explanation"]),
        _error(content["error"], content.get("lost_party")),
        warnings=tuple(map(str, content.get("warnings", ()))),
    )


def _error(text: str | None, lost: str | None) -> CoterieError | None:
    """Make the error of a run from the text in its file."""
    if text is None:
        return None
    if lost is None:
        return CoterieError(text)
    return PartyLost(text, lost)


def _seal(content: Mapping[str, Any]) -> str:
    return digest(json.dumps(content, sort_keys=True))


def _as_json(numbers: npt.NDArray[Any]) -> list[float | str]:
    """Numbers for JSON; those that are not finite as text, which `float` reads back."""
    values: list[float | str] = []
    for number in numbers.tolist():
        if math.isfinite(number):
            values.append(number)
        else:
            values.append(str(number))
    return values


def _network_state(network: Network) -> dict[str, Any]:
    positions = None
    if network.positions is not None:
        positions = network.positions.tolist()
    return {
        "agents": network.agents,
        "name": network.name,
        "server": network.server,
        "edges": network.edges.tolist(),
        "weights": sp.triu(network.weights, k=1, format="csr").data.tolist(),
        "positions": positions,
    }


def _network_from(state: Mapping[str, Any]) -> Network:
    agents = int(state["agents"])
    edges = np.array(state["edges"], np.intp).reshape(-1, 2)
    entries = (np.array(state["weights"], float), (edges[:, 0], edges[:, 1]))
    half = sp.coo_array(entries, shape=(agents, agents))
    positions = None
    if state["positions"] is not None:
        positions = np.array(state["positions"], float)
    weights = sp.csr_array(half + half.T)
    return Network(weights, state["name"], state["server"], positions)
