"""Check data with scikit-learn, and name the invalid columns in errors."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

SHOWN = 3


def checked(estimator: Any, X: Any, *y: Any, **how: Any) -> Any:
    """Call `validate_data`. If it refuses values of a data frame, the error also names their
    columns.
    """
    try:
        return validate_data(estimator, X, *y, **how)
    except ValueError as error:
        columns = _bad_columns(X)
        if not columns:
            raise
        raise type(error)(f"{error}\n{columns}") from None


def _bad_columns(X: Any) -> str:
    """Text that names the columns of a data frame that are not numeric, or have values that are not
    finite.
    """
    found = []
    for name in getattr(X, "columns", ()):
        values = np.asarray(X[name])
        if values.dtype.kind not in "biuf":
            found.append(f"column {str(name)!r} holds {values.dtype}, not numbers")
            continue
        odd = np.flatnonzero(~np.isfinite(values.astype(float)))
        if odd.size:
            found.append(f"column {str(name)!r} has {odd.size} not finite (first at row {odd[0]})")
    if not found:
        return ""
    shown = found[:SHOWN]
    if len(found) > SHOWN:
        shown.append(f"and {len(found) - SHOWN} more")
    return "; ".join(shown) + "."
