"""Read a party's data, wherever it is, as a `Table`.

    read((X, y)), read(X)                     arrays or scipy.sparse matrices, which stay sparse
    read(frame, target="price", id="person")  pandas, polars, pyarrow, ...
    read("shop.parquet", target="price")      also .arrow, .feather, .csv, .npz, and svmlight (.svm,
                                              .txt, ...)

Columns that hold no numbers are refused by name. `validated` checks the values later, once.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.data.frames import PLAIN, Roles, as_frame, column_values, noun_of, read_frame
from coterie.data.places import Origin, encoding_error, naming_lines
from coterie.data.preparation.prepared import Prepared
from coterie.data.preparation.raw import raw_objects
from coterie.data.preparation.recipes import Preparation
from coterie.data.streams import ENDINGS, read_columns, read_stream, refuse_repeated, unreadable
from coterie.data.table import ROW_VALUES, Table, canonical_csr, party_error
from coterie.data.values import plain
from coterie.errors import InvalidInput, UnknownName
from coterie.numerics.arrays import Matrix, host, is_sparse, is_tensor
from coterie.problems import kinds

SNIFFED = 100_000
"""Number of bytes of a CSV file from which its separator is found."""
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
    labels: Mapping[str, str] | None = None,
    columns: Sequence[str] | None = None,
    name: str | None = None,
    zero_based: bool | None = None,
    prepare: Preparation | Prepared | None = None,
    by_columns: bool = False,
    on_disk: bool | None = None,
) -> Table:
    """Read one party's data as a `Table`.

    Parameters
    ----------
    source : array, tuple, data frame, Table, str or Path
        `(X, y)`, `(X, y, weights)`, `(X, y, weights, offset)` or X alone, of arrays or scipy.sparse
        matrices; a data frame of pandas, polars or pyarrow; or a file: Parquet, Arrow, CSV, .npz or
        svmlight. Parquet and Arrow files are read a few rows at a time.
    target : str, optional
        Column with the labels, in a frame or file with named columns.
    id : str, optional
        Column with the row ids.
    weight : str, optional
        Column with the sample weights.
    offset : str, optional
        Column with the offsets: numbers that are added to the scores.
    exposure : str, optional
        Column whose logarithms are the offsets.
    time, event, entry, strata : str, optional
        Columns of labels of survival times, in place of `target`: `time` and `event`, and perhaps
        `entry` and `strata`.
    labels : dict of str, optional
        Columns of labels by their roles, in place of `target`, as the kind of problem names them
        (`Kind.labels`).
    columns : list of str, optional
        The columns of X, in a frame or file with named columns; by default all others. For arrays,
        the names of the columns.
    name : str, optional
        The name of this party in errors. By default that of the file, or "data".
    zero_based : bool, optional
        Whether the columns of an svmlight file count from 0. By default, a file that never uses
        column 0 counts from 1, so give it if several parties bring files.
    prepare : Preparation or Prepared, optional
        A preparation, for which missing values and text are kept.
    by_columns : bool, default=False
        Whether to store the numbers column by column, as suits data that is split by features.
    on_disk : bool, optional
        Whether to keep the numbers of a Parquet or Arrow file in a mapped temporary file (in
        `TMPDIR`). By default only if memory does not hold them.

    Returns
    -------
    Table

    Raises
    ------
    InvalidData
        If the source cannot be read, or a column is missing or has the wrong type.
    InvalidInput
        If the roles of columns do not go together.

    Examples
    --------
    >>> import coterie as co, pandas as pd
    >>> frame = pd.DataFrame({"age": [61, 48, 55], "ill": ["yes", "no", "no"]})
    >>> table = co.read(frame, target="ill")
    >>> table.columns, table.n
    (('age',), 3)
    """
    given = {"target": target, "id": id, "weight": weight, "offset": offset, "exposure": exposure}
    given |= {"time": time, "event": event, "entry": entry, "strata": strata, **(labels or {})}
    named = {role: column for role, column in given.items() if column is not None}
    if "offset" in named and "exposure" in named:
        raise InvalidInput(
            "offset and exposure both name the numbers that are added to the scores. Give one."
        )
    _check_labels(named)
    wanted = None
    if columns is not None:
        wanted = tuple(map(str, columns))
    roles = Roles(named, wanted, zero_based, prepare, by_columns or prepare is not None, on_disk)
    return _read(source, roles, name)


def _read(source: Any, roles: Roles, name: str | None) -> Table:
    if isinstance(source, str | os.PathLike):
        path = Path(source).expanduser()
        return _read_path(path, roles, name or path.name.split(".")[0])
    if isinstance(source, Table):
        _refuse_roles(roles, "a Table", name or source.name)
        table = source
        if name is not None:
            table = replace(table, name=name)
        if roles.columns is not None:
            table = replace(table, columns=roles.columns)
        return table
    party = name or "data"
    if isinstance(source, tuple):
        return _read_tuple(source, roles, party)
    if is_tensor(source):
        _refuse_roles(roles, "a tensor", party)
        return Table(X=source, columns=roles.columns, name=party)
    frame = as_frame(source, party)
    if frame is not None:
        return read_frame(frame, roles, party)
    return _read_array(source, roles, party)


def _read_array(source: Any, roles: Roles, party: str) -> Table:
    _refuse_roles(roles, "an array", party)
    if is_sparse(source):
        return Table(X=canonical_csr(source), columns=roles.columns, name=party)
    X = np.asanyarray(source)
    if roles.prepare is not None and X.ndim == 2 and X.dtype.kind in "OUT":
        return _read_objects(X, roles.columns, party)
    if isinstance(X, np.matrix):
        X = np.asarray(X)
    return Table(X=X, columns=roles.columns, name=party)


def _check_labels(named: Mapping[str, str]) -> None:
    """Refuse roles of labels that no kind of problem has."""
    own = named.keys() - PLAIN
    if not own:
        return
    kind = next((kind for kind in kinds() if own <= {*kind.labels.roles}), None)
    if kind is None:
        known: set[str] = set()
        for one in kinds():
            known |= {*one.labels.roles}
        raise UnknownName("role of a column", sorted(own)[0], sorted(known))
    needed = kind.labels.roles[: kind.labels.needed]
    if "target" in named or not own >= {*needed}:
        columns = " and one for ".join(needed)
        raise InvalidInput(f"{kind.name} needs a column for {columns}, and no target. Name these.")


def read_party(given: Any, index: int, **how: Any) -> Table:
    """Read the data of one of several parties. Data without a name gets the number of the party."""
    name = None
    if not isinstance(given, Table | str | os.PathLike):
        name = f"party {index}"
    table = read(given, name=name, **how)
    if table.name == "data":
        return replace(table, name=f"party {index}")
    return table


def _refuse_roles(roles: Roles, what: str, party: str) -> None:
    for role, column in roles.named.items():
        raise InvalidInput(
            f"party {party!r}: {role}={column!r} names a column, but {what} has no such columns. "
            f"Give {TUPLES}, a data frame, or a Table."
        )


def _read_tuple(source: tuple[Any, ...], roles: Roles, party: str) -> Table:
    places = {"target": "y", "weight": "weights", "offset": "offset"}
    if not 2 <= len(source) <= 1 + len(places):
        raise InvalidInput(f"party {party!r}: a tuple of {len(source)} was given. Give {TUPLES}.")
    taken = [role for role in [*places][: len(source) - 1] if role in roles.named]
    if taken:
        raise InvalidInput(
            f"party {party!r}: the labels or weights are in the tuple and in {taken[0]}=. Give one."
        )
    table = read(source[0], columns=roles.columns, name=party, prepare=roles.prepare, **roles.named)
    found: dict[str, Any] = {}
    for (role, field), values in zip(places.items(), source[1:], strict=False):
        if values is not None:
            found[field] = values_of(values, party, noun_of(role))
    return replace(table, **found)


def values_of(source: Any, party: str, noun: str) -> npt.NDArray[Any]:
    """Read one value per row from an array, a list, or a series of any kind."""
    source = host(source)
    if not isinstance(source, np.ndarray):
        series = nw.from_native(source, allow_series=True, pass_through=True)
        if isinstance(series, nw.Series):
            return column_values(series, party, f"the column of {noun}s", noun)
    return plain(source, party, noun)


def _read_objects(X: npt.NDArray[Any], columns: tuple[str, ...] | None, party: str) -> Table:
    """Read a matrix with text, for a preparation."""
    names = columns or tuple(f"x{j}" for j in range(X.shape[1]))
    values = []
    texts = {}
    for j, name in enumerate(names):
        own, found = raw_objects(X[:, j].astype(object), party, f"column {name!r}")
        values.append(own)
        if found is not None:
            texts[name] = found
    return Table(X=np.column_stack(values), columns=names, name=party, texts=texts or None)


# -- files -----------------------------------------------------------------------------------------


def _read_path(path: Path, roles: Roles, party: str) -> Table:
    if not path.is_file():
        problem = "does not exist"
        if path.is_dir():
            problem = "is a folder"
        raise party_error(
            party, f"the file {str(path)!r} {problem}. Check the path, or name one file."
        )
    uncompressed = path
    if path.suffix in (".bz2", ".gz"):
        uncompressed = path.with_suffix("")
    reader = _READERS.get(uncompressed.suffix.lower())
    if reader is None:
        known = ", ".join(sorted(_READERS))
        raise party_error(
            party,
            f"the name of the file {str(path)!r} does not show its format. Known endings: {known}.",
        )
    return reader(path, roles, party)


def read_cells(path: str | os.PathLike[str], names: Sequence[str]) -> dict[str, list[Any]]:
    """Read columns of a file unchanged, to be copied: text of a CSV, values of Parquet and Arrow,
    None if missing.
    """
    if not names:
        return {}
    path = Path(path).expanduser()
    party = path.name.split(".")[0]
    kinds = {ending.lower() for ending in path.suffixes}
    if not kinds & {".csv", *ENDINGS}:
        raise party_error(
            party,
            f"the file {str(path)!r} has no named columns to copy. Give CSV, Parquet or Arrow.",
        )
    if kinds & {*ENDINGS}:
        table = _parquet_or_arrow(path, party)
    else:
        table = _csv_texts(path, names, party)
    for name in names:
        if name not in table.column_names:
            raise party_error(party, str(UnknownName("column", name, table.column_names)))
    return {name: table.column(name).to_pylist() for name in names}


def _parquet_or_arrow(path: Path, party: str) -> Any:
    import pyarrow as pa

    try:
        return read_columns(path)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, party, path.suffix[1:], error) from error


def _csv_texts(path: Path, names: Sequence[str], party: str) -> Any:
    import pyarrow as pa

    try:
        table = _csv_columns(path, dict.fromkeys(names, pa.string()))
        _refuse_bytes(table, path, party)
    except (pa.ArrowException, OSError) as error:
        raise encoding_error(path, party) or unreadable(path, party, "CSV", error) from error
    return table


def _csv_columns(path: Path, types: dict[str, Any], **more: Any) -> Any:
    """Read a CSV file as an Arrow table.

    The fields of a file without a comma in its first line may be separated by semicolons or tabs.
    """
    import pyarrow.csv as csv

    separator, rest = _separator(path)
    # Where fields are separated by semicolons, numbers may have decimal commas.
    decimal = "."
    if separator == ";" and re.search(r"(^|[;\n])-?\d+,\d+(;|\r?\n|$)", rest):
        decimal = ","
    return csv.read_csv(
        path,
        parse_options=csv.ParseOptions(delimiter=separator),
        convert_options=csv.ConvertOptions(column_types=types, decimal_point=decimal, **more),
    )


def _separator(path: Path) -> tuple[str, str]:
    """Find the separator of the fields of a CSV file; with some of its lines after the first."""
    import pyarrow as pa

    with pa.input_stream(str(path)) as file:
        first, _, rest = file.read(SNIFFED).decode("utf-8", "replace").partition("\n")
    if "," not in first:
        for mark in ";\t":
            if mark in first:
                return mark, rest
    return ",", rest


def _refuse_bytes(table: Any, path: Path, party: str) -> None:
    """Refuse a CSV file that is not UTF-8: its names cannot be read, or its columns of text are
    bytes.
    """
    import pyarrow as pa

    try:
        has_names = bool(table.column_names)
        readable = has_names and not any(map(pa.types.is_binary, table.schema.types))
    except UnicodeDecodeError:
        readable = False
    if readable:
        return
    error = encoding_error(path, party)
    if error is not None:
        raise error


def _read_csv(path: Path, roles: Roles, party: str) -> Table:
    import pyarrow as pa

    # Ids and categories are read as text first: "007" is not 7.
    categories: Iterable[str] = ()
    if roles.prepare is not None:
        categories = roles.prepare.texts
    types = dict.fromkeys(categories, pa.string())
    if "id" in roles.named:
        types[roles.named["id"]] = pa.string()
    try:
        table = _csv_columns(path, types, strings_can_be_null=True)
    except (pa.ArrowException, OSError) as error:
        raise encoding_error(path, party) or unreadable(path, party, "CSV", error) from error
    _refuse_bytes(table, path, party)
    refuse_repeated(table.column_names, path, party)
    separator, _ = _separator(path)
    origin = Origin(path, separator, roles.named)
    with naming_lines(Table(np.empty((0, 0)), name=party, origin=origin)):
        read_table = read_frame(nw.from_native(table, eager_only=True), roles, party)
    ids = read_table.ids
    if ids is not None:
        ids = _integers_if_spelt_so(ids)
    return replace(read_table, origin=origin, ids=ids)


def _integers_if_spelt_so(ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    try:
        numbers = ids.astype(np.int64)
    except (ValueError, OverflowError):
        return ids
    if np.array_equal(numbers.astype(str), ids):
        return numbers
    return ids


def _read_svmlight(path: Path, roles: Roles, party: str) -> Table:
    from sklearn.datasets import load_svmlight_file

    _refuse_roles(roles, "an svmlight file", party)
    width = None
    if roles.columns is not None:
        width = len(roles.columns)
    counting: bool | str = "auto"
    if roles.zero_based is not None:
        counting = roles.zero_based
    try:
        X, y = load_svmlight_file(str(path), n_features=width, zero_based=counting)
    except (ValueError, OSError, EOFError) as error:
        raise unreadable(path, party, "svmlight", error) from error
    ends = roles.columns is None
    return Table(
        X=canonical_csr(X), y=y, columns=roles.columns, name=party, open_ended=ends, roles=()
    )


def _read_npz(path: Path, roles: Roles, party: str) -> Table:
    """Dense: X. Sparse: data, indices, indptr, shape (CSR). With either: y, weights, offset, ids,
    columns.
    """
    _refuse_roles(roles, "an .npz archive", party)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise unreadable(path, party, "an archive of plain arrays", error) from error
    X = _matrix_in(arrays, path, party)
    names = roles.columns
    if not names and "columns" in arrays:
        names = tuple(map(str, arrays["columns"]))
    others = {
        field: arrays[field] for field in ("y", "ids", *ROW_VALUES.values()) if field in arrays
    }
    return Table(X=X, columns=names, name=party, roles=(), **others)


def _matrix_in(arrays: Mapping[str, Any], path: Path, party: str) -> Matrix:
    """Take a dense or a sparse matrix out of the arrays of an archive."""
    if "X" in arrays:
        return arrays["X"]
    sparse = ("data", "indices", "indptr", "shape")
    kind = arrays.get("format", np.array(b"csr"))
    if not all(key in arrays for key in sparse) or kind != b"csr":
        found = ", ".join(arrays) or "nothing"
        raise party_error(
            party,
            f"the file {str(path)!r} has neither X nor {', '.join(sparse)} of a CSR matrix, but "
            f"{found}.",
        )
    data, indices, indptr, shape = (arrays[key] for key in sparse)
    entries = (data, indices.astype(np.int64), indptr)
    return canonical_csr(sp.csr_array(entries, shape=tuple(shape)))


_READERS = {
    ".csv": _read_csv,
    ".libsvm": _read_svmlight,
    ".npz": _read_npz,
    ".svm": _read_svmlight,
    ".svmlight": _read_svmlight,
    ".txt": _read_svmlight,
    **dict.fromkeys(ENDINGS, read_stream),
}
