"""Pictures and pages about a run."""

from __future__ import annotations

from pathlib import Path

from coterie.result import Result

__all__ = ["write_report"]


def write_report(result: Result, path: str | Path) -> Path:
    """Write a report."""
    path = Path(path)
    path.write_text("")
    return path
