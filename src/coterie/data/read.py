"""Read a party's data, wherever it is, as a `Table`.

    read((X, y)), read(X)                     arrays or scipy.sparse matrices, which stay sparse
    read(frame, target="price", id="person")  pandas, polars, pyarrow, ...
    read("shop.parquet", target="price")      also .csv, and .svm, .svmlight, .libsvm, .txt (or .gz, .bz2), .npz

Frames and files are read column by column; what is not a number is refused by name. Values are judged later, once, by
`validated`.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import narwhals as nw
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.arrays import host, is_sparse, is_tensor
from coterie.data.prepared import Prepared
from coterie.data.raw import raw_objects, raw_series
from coterie.data.recipes import Preparation
from coterie.data.table import BESIDE, Table, canonical_csr, party_error
from coterie.data.values import logarithms, plain, plain_ids
from coterie.errors import InvalidData, InvalidInput, UnknownName
from coterie.survival import ROLES, survival_labels

Frame: TypeAlias = "nw.DataFrame[Any]"
Series: TypeAlias = "nw.Series[Any]"
SNIFFED = 100_000
"""So many characters of a CSV file say how it is separated."""
TUPLES = "(X, y), (X, y, weights) or (X, y, weights, offset)"


def read(
    source: Any,
    *,
    target: str | None = None,
    id: str | None = None,
    weight: str | None = None,
    offset: str | None = None,
    exposure: str | None = None,
    time: str | None = None,
    event: str | None = None,
    entry: str | None = None,
    strata: str | None = None,
    columns: Sequence[str] | None = None,
    name: str | None = None,
    zero_based: bool | None = None,
    prepare: Preparation | Prepared | None = None,
) -> Table:
    """One party's data as a `Table`.

    In frames and files with named columns, `target`, `id`, `weight` and `offset` name the columns of labels, row ids,
    sample weights and offsets, and `columns` those of X (all the others, if not given). `exposure` names a column whose
    logarithm is the offset. For survival `time` and `event`, and perhaps `entry` and `strata`, take the place of
    `target`: see `survival_labels`. Elsewhere `columns` gives the columns their names.
    `name` is how errors call this party. `zero_based` says whether the columns of an svmlight file count from 0;
    without it, a file that never uses column 0 is taken to count from 1, so say it when several parties bring files.
    With a preparation (`prepare`), missing values and text are kept for it.
    """
    given = {"target": target, "id": id, "weight": weight, "offset": offset, "exposure": exposure}
    given |= {"time": time, "event": event, "entry": entry, "strata": strata}
    named = {role: column for role, column in given.items() if column is not None}
    if "offset" in named and "exposure" in named:
        raise InvalidInput("an offset and an exposure both say what is added to the scores. Give one.")
    if (survival := [role for role in ROLES if role in named]) and (
        "target" in named or survival[:2] != ["time", "event"]
    ):
        raise InvalidInput("survival needs a column for time and one for event, and no target. Name these two.")
    roles = _Roles(named, None if columns is None else tuple(map(str, columns)), zero_based, prepare)
    if isinstance(source, str | os.PathLike):
        path = Path(source).expanduser()
        return _read_path(path, roles, name or path.name.split(".")[0])
    if isinstance(source, Table):
        _refuse_roles(roles, "a Table", name or source.name)
        table = source if name is None else replace(source, name=name)
        return table if roles.columns is None else replace(table, columns=roles.columns)
    party = name or "data"
    if isinstance(source, tuple):
        return _read_tuple(source, roles, party)
    if is_tensor(source):
        _refuse_roles(roles, "a tensor", party)
        return Table(X=source, columns=roles.columns, name=party)
    frame = _as_frame(source, party)
    if frame is not None:
        return _read_frame(frame, roles, party)
    _refuse_roles(roles, "an array", party)
    X = canonical_csr(source) if is_sparse(source) else np.asanyarray(source)
    if prepare is not None and X.ndim == 2 and X.dtype.kind in "OUT":
        return _read_objects(X, roles.columns, party)
    return Table(X=np.asarray(X) if isinstance(X, np.matrix) else X, columns=roles.columns, name=party)


@dataclass(frozen=True)
class _Roles:
    """Which column is what."""

    named: dict[str, Any]
    """The columns that are not X's, by role."""
    columns: tuple[str, ...] | None
    zero_based: bool | None = None
    prepare: Preparation | Prepared | None = None
    """If set, missing values and text are kept."""


def _refuse_roles(roles: _Roles, what: str, party: str) -> None:
    for role, column in roles.named.items():
        raise InvalidInput(
            f"party {party!r}: {role}={column!r} names a column, but {what} has no such columns. "
            f"Give {TUPLES}, a data frame, or a Table."
        )


def _read_tuple(source: tuple[Any, ...], roles: _Roles, party: str) -> Table:
    places = {"target": "y", "weight": "weights", "offset": "offset"}
    if not 2 <= len(source) <= 1 + len(places):
        raise InvalidInput(f"party {party!r}: a tuple of {len(source)} was given. Give {TUPLES}.")
    taken = [role for role in [*places][: len(source) - 1] if role in roles.named]
    if taken:
        raise InvalidInput(f"party {party!r}: the labels or weights are in the tuple and in {taken[0]}=. Give one.")
    table = read(source[0], columns=roles.columns, name=party, prepare=roles.prepare, **roles.named)
    found: dict[str, Any] = {
        field: values_of(values, party, {"target": "label"}.get(role, role))
        for (role, field), values in zip(places.items(), source[1:], strict=False)
        if values is not None
    }
    return replace(table, **found)


def values_of(source: Any, party: str, noun: str) -> npt.NDArray[Any]:
    """One value per row, from an array, a list, or a series of any kind."""
    source = host(source)
    if not isinstance(source, np.ndarray):
        series = nw.from_native(source, allow_series=True, pass_through=True)
        if isinstance(series, nw.Series):
            return _column_values(series, party, f"the column of {noun}s", noun)
    return plain(source, party, noun)


# -- frames ------------------------------------------------------------------------------------------------------------


def _as_frame(source: Any, party: str) -> Frame | None:
    if isinstance(source, np.ndarray) or is_sparse(source):
        return None
    try:
        frame = nw.from_native(source, pass_through=True)
        if isinstance(frame, nw.LazyFrame):
            frame = frame.collect()
        if isinstance(frame, nw.DataFrame):
            _ = frame.columns
            return frame
    except nw.exceptions.DuplicateError:
        repeated = [str(column) for column, times in Counter(source.columns).items() if times > 1]
        raise party_error(
            party, f"{len(repeated)} column names occur more than once, e.g. {repeated[0]!r}. Rename them."
        ) from None
    return None


def _read_frame(frame: Frame, roles: _Roles, party: str) -> Table:
    series = {str(column): frame.get_column(column) for column in frame.columns}
    for role, column in roles.named.items():
        if column not in series:
            raise party_error(party, f"{role}={column!r}: {UnknownName('column', column, series)}")
    special = set(roles.named.values())
    chosen = roles.columns if roles.columns is not None else tuple(c for c in series if c not in special)
    for column in chosen:
        if column not in series:
            raise party_error(party, f"columns=: {UnknownName('column', column, series)}")
        if column in special:
            role = next(role for role, name in roles.named.items() if name == column)
            raise party_error(party, f"column {column!r} is in columns= and is also the {role}.")
    single = bool(chosen) and all(series[column].dtype == nw.Float32 for column in chosen)
    X = np.empty((len(frame), len(chosen)), np.float32 if single else np.float64, order="F")
    texts: dict[str, tuple[str, ...]] = {}
    for j, column in enumerate(chosen):
        if roles.prepare is None:
            X[:, j] = _numbers(series[column], party, f"column {column!r}")
            continue
        X[:, j], found = raw_series(series[column], party, f"column {column!r}")
        texts |= {} if found is None else {column: found}
    values = {
        role: _column_values(series[column], party, f"column {column!r}", {"target": "label"}.get(role, role))
        for role, column in roles.named.items()
    }
    if "exposure" in values:
        values["offset"] = logarithms(values["exposure"], party, roles.named["exposure"])
    beside: dict[str, Any] = {field: values[role] for role, field in BESIDE.items() if role in values}
    return Table(
        X=X,
        y=_survival(values, party) if "time" in values else values.get("target"),
        **beside,
        ids=plain_ids(values["id"], party) if "id" in values else None,
        columns=chosen,
        name=party,
        texts=texts or None,
    )


def _survival(values: dict[str, npt.NDArray[Any]], party: str) -> npt.NDArray[Any]:
    try:
        return survival_labels(**{role: values.get(role) for role in ROLES})
    except InvalidData as error:
        raise party_error(party, str(error)) from None


def _read_objects(X: npt.NDArray[Any], columns: tuple[str, ...] | None, party: str) -> Table:
    """A matrix with text, for a preparation."""
    names = columns or tuple(f"x{j}" for j in range(X.shape[1]))
    cells = [raw_objects(X[:, j].astype(object), party, f"column {name!r}") for j, name in enumerate(names)]
    texts = {name: found for name, (_, found) in zip(names, cells, strict=True) if found is not None}
    return Table(X=np.column_stack([values for values, _ in cells]), columns=names, name=party, texts=texts or None)


def _numbers(series: Series, party: str, column: str) -> npt.NDArray[Any]:
    """A column of X: numbers or booleans, none missing."""
    _refuse_missing(series, party, column)
    if not (series.dtype.is_numeric() or series.dtype == nw.Boolean):
        fix = "Encode it (prepare, with one-hot)"
        if series.dtype in (nw.Date, nw.Datetime, nw.Time, nw.Duration):
            fix = "Write it as a number, such as the days since a certain date"
        raise party_error(
            party,
            f"{column} holds {len(series)} values of type {series.dtype}, not numbers. {fix}, or leave it out: name "
            "the other ones with columns=.",
        )
    if isinstance(series.dtype, nw.Decimal):
        series = series.cast(nw.Float64)
    return series.to_numpy()


def _column_values(series: Series, party: str, column: str, noun: str) -> npt.NDArray[Any]:
    """A column of labels, ids, weights or the like: numbers, booleans or text, none missing."""
    _refuse_missing(series, party, column)
    if isinstance(series.dtype, nw.Categorical | nw.Enum):
        series = series.cast(nw.String)
    if isinstance(series.dtype, nw.Decimal):
        series = series.cast(nw.Float64)
    return plain(series.to_numpy(), party, noun)


def _refuse_missing(series: Series, party: str, column: str) -> None:
    missing = int(series.null_count())
    if missing:
        first = int(np.argmax(series.is_null().to_numpy()))
        what = "missing value" if missing == 1 else "missing values"
        raise party_error(
            party, f"{column} has {missing} {what} (first at row {first}). Drop or impute them (prepare)."
        )


# -- files -------------------------------------------------------------------------------------------------------------


def _read_path(path: Path, roles: _Roles, party: str) -> Table:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise party_error(party, f"the file {str(path)!r} {what}. Check the path, or name one file.")
    endings = path.suffixes[:-1] if path.suffix in (".bz2", ".gz") else path.suffixes
    reader = _READERS.get(endings[-1].lower() if endings else "")
    if reader is None:
        known = ", ".join(sorted(_READERS))
        raise party_error(party, f"cannot tell from its name what the file {str(path)!r} is. Known endings: {known}.")
    return reader(path, roles, party)


def read_cells(path: str | os.PathLike[str], names: Sequence[str]) -> dict[str, list[Any]]:
    """Columns of a CSV or Parquet file as they are, to be copied: text of a CSV, values of Parquet, None if missing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not names:
        return {}
    path = Path(path).expanduser()
    party = path.name.split(".")[0]
    kinds = {ending.lower() for ending in path.suffixes}
    if not kinds & {".csv", ".parquet"}:
        raise party_error(party, f"the file {str(path)!r} has no named columns to copy. Give CSV or Parquet.")
    try:
        if ".parquet" in kinds:
            table = pq.read_table(path, partitioning=None)
        else:
            table = _csv_columns(path, dict.fromkeys(names, pa.string()))
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, party, "Parquet" if ".parquet" in kinds else "CSV", error) from error
    for name in names:
        if name not in table.column_names:
            raise party_error(party, str(UnknownName("column", name, table.column_names)))
    return {name: table.column(name).to_pylist() for name in names}


def _unreadable(path: Path, party: str, kind: str, error: Exception) -> InvalidData:
    return party_error(party, f"the file {str(path)!r} cannot be read as {kind}: {error}. Write it again.")


def _read_parquet(path: Path, roles: _Roles, party: str) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, party, "Parquet", error) from error
    # pandas stores a frame's nameless index beside its columns; it is no feature.
    nameless = [name for name in table.column_names if name.startswith("__index_level_")]
    return _read_frame(nw.from_native(table.drop_columns(nameless), eager_only=True), roles, party)


def _csv_columns(path: Path, types: dict[str, Any], **more: Any) -> Any:
    """A CSV file as an Arrow table; one without a comma in its first line may be separated by semicolons or tabs."""
    import pyarrow as pa
    import pyarrow.csv as csv

    with pa.input_stream(str(path)) as file:
        first, _, rest = file.read(SNIFFED).decode("utf-8", "replace").partition("\n")
    separator = next((mark for mark in ";\t" if mark in first and "," not in first), ",")
    # Where fields are separated by semicolons, numbers may have decimal commas.
    decimal = "," if separator == ";" and re.search(r"(^|[;\n])-?\d+,\d+(;|\r?\n|$)", rest) else "."
    return csv.read_csv(
        path,
        parse_options=csv.ParseOptions(delimiter=separator),
        convert_options=csv.ConvertOptions(column_types=types, decimal_point=decimal, **more),
    )


def _read_csv(path: Path, roles: _Roles, party: str) -> Table:
    import pyarrow as pa

    # Ids and categories are read as text first: "007" is not 7.
    categories = () if roles.prepare is None else roles.prepare.texts
    types = dict.fromkeys([*categories, *([roles.named["id"]] if "id" in roles.named else [])], pa.string())
    try:
        table = _csv_columns(path, types, strings_can_be_null=True)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, party, "CSV", error) from error
    twice = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if twice:
        raise party_error(party, f"{path} has more than one column called {', '.join(twice)}. Rename them.")
    read_table = _read_frame(nw.from_native(table, eager_only=True), roles, party)
    return replace(read_table, ids=None if read_table.ids is None else _integers_if_spelt_so(read_table.ids))


def _integers_if_spelt_so(ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    try:
        numbers = ids.astype(np.int64)
    except (ValueError, OverflowError):
        return ids
    return numbers if np.array_equal(numbers.astype(str), ids) else ids


def _read_svmlight(path: Path, roles: _Roles, party: str) -> Table:
    from sklearn.datasets import load_svmlight_file

    _refuse_roles(roles, "an svmlight file", party)
    try:
        width = None if roles.columns is None else len(roles.columns)
        counting = "auto" if roles.zero_based is None else roles.zero_based
        X, y = load_svmlight_file(str(path), n_features=width, zero_based=counting)
    except (ValueError, OSError, EOFError) as error:
        raise _unreadable(path, party, "svmlight", error) from error
    return Table(X=canonical_csr(X), y=y, columns=roles.columns, name=party, open_ended=roles.columns is None)


def _read_npz(path: Path, roles: _Roles, party: str) -> Table:
    """Dense: X. Sparse: data, indices, indptr, shape (CSR). Beside either: y, weights, offset, ids, columns."""
    _refuse_roles(roles, "an .npz archive", party)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise _unreadable(path, party, "an archive of plain arrays", error) from error
    sparse = ("data", "indices", "indptr", "shape")
    if "X" in arrays:
        X = arrays["X"]
    elif all(key in arrays for key in sparse) and arrays.get("format", np.array(b"csr")) == b"csr":
        data, indices, indptr, shape = (arrays[key] for key in sparse)
        X = canonical_csr(sp.csr_array((data, indices.astype(np.int64), indptr), shape=tuple(shape)))
    else:
        found = ", ".join(arrays) or "nothing"
        raise party_error(
            party, f"the file {str(path)!r} has neither X nor {', '.join(sparse)} of a CSR matrix, but {found}."
        )
    names = roles.columns or (tuple(map(str, arrays["columns"])) if "columns" in arrays else None)
    beside = {field: arrays[field] for field in BESIDE.values() if field in arrays}
    return Table(X=X, y=arrays.get("y"), ids=arrays.get("ids"), columns=names, name=party, **beside)


_READERS = {
    ".csv": _read_csv,
    ".libsvm": _read_svmlight,
    ".npz": _read_npz,
    ".parquet": _read_parquet,
    ".svm": _read_svmlight,
    ".svmlight": _read_svmlight,
    ".txt": _read_svmlight,
}
