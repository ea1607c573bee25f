"""The models that come out: plain arrays that predict, saved as arrays and JSON, never as pickle."""

from __future__ import annotations

from coterie.models.linear import LinearModel

__all__ = ["LinearModel"]
