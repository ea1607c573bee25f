"""Labels from columns: from one, or from several, as a kind of problem says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy.typing as npt


class Labels:
    """Labels from columns of a file: from one, the `target`, unless a kind overrides this."""

    roles: ClassVar[tuple[str, ...]] = ("target",)
    """The roles of the columns. The first `needed` of them are required, and exclude `target`."""
    needed: ClassVar[int] = 0

    def made(self, values: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any] | None:
        """Make the labels of these columns, given by role."""
        return values.get("target")
