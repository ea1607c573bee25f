"""Pictures and pages about a run.

    write_report(result, "report.html")         one page that opens anywhere, also offline
    save_figures(result, "figures", "pdf")      its pictures as files

Matplotlib is only loaded when one of these is called, so that the command line starts quickly.
"""

from __future__ import annotations

from pathlib import Path

from coterie.errors import UnknownName
from coterie.files import write_atomically
from coterie.result import Result

__all__ = ["FORMATS", "save_figures", "write_report"]

FORMATS = ("svg", "pdf", "png")


def write_report(result: Result, path: str | Path) -> Path:
    """Write one self-contained HTML page about the run: what is proven, how it went, what it cost, how to repeat it."""
    from coterie.report.page import page

    return write_atomically(path, page(result).encode())


def save_figures(result: Result, folder: str | Path, format: str = "svg") -> list[Path]:
    """Write the pictures of the report as files into a folder, as "svg", "pdf" or "png"."""
    from coterie.report.figures import figures, rendered

    if format not in FORMATS:
        raise UnknownName("figure format", format, FORMATS)
    return [
        write_atomically(Path(folder) / f"{name}.{format}", rendered(figure, format))
        for name, figure in figures(result).items()
    ]
