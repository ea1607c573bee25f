"""The model: its picture, its facts, and its largest numbers as a table."""

from __future__ import annotations

from coterie.report.model import model_section as render

__all__ = ["ORDER", "render"]

ORDER = 50
