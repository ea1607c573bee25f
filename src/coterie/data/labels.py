"""How labels come from columns: from one, or from several, as a kind of problem says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy.typing as npt


class Labels:
    """How labels come from columns of a file: from one, named `target`, unless a kind says
    otherwise.
    """

    roles: ClassVar[tuple[str, ...]] = ("target",)
    """What the columns are called; the first `needed` of them are, and `target` is not beside them.
    """
    needed: ClassVar[int] = 0

    def made(self, values: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any] | None:
        """The labels of these columns, by role."""
        return values.get("target")

    def placeholder(self, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Made-up labels of that shape that the kind takes, for a table that is elsewhere."""
        return y
