"""Run a study, keep its numbers, and show it: files for whoever wants to look closer, and the gallery's page.

    FOLDER/000-fig1/numbers.parquet    one row per point: panel, label, method, x, y
    FOLDER/000-fig1/study.json         settings with the seed, claims, bills, version, machine, seconds
    FOLDER/000-fig1/figure.svg, .png

A gallery is a folder with one picture and one record per study, and a page beside it that is written from all of them.
"""

from __future__ import annotations

import io
import json
import math
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from coterie.errors import CorruptFile
from coterie.files import write_atomically
from coterie.studies.study import Numbers, Study

__all__ = ["reproduce", "write_gallery_page"]

HEAD = """# Gallery

Every figure that `coterie reproduce` knows, drawn by it; this page is written by it too:

```bash
coterie reproduce all --quick --gallery docs/gallery
```

"Quick" is a size for seconds, "paper" the paper's own; settings, seeds, bills and machine are in the JSON file beside
each picture. ✓ is a statement of the paper that these numbers bear out, ✗ one that they do not; the reason
beside a ✗ is our reading of it, not a proof. Quick sizes are ours. Three were changed after a first look, and some
marks turned to ✓ with them: 001 fig1 ends after 200 rounds instead of 80, at which the published alternation was
unfinished and Dada-Learned below Local; 004 fig2 runs 100 epochs instead of 40; 000 fig1 compares p among the random
graphs only. 001 fig6, 001 fig10, 004 fig3 and 004 fig4 were changed too, as their remarks say; one mark each of 004
fig3 and 004 fig4 turned to ✓.
"""


def reproduce(study: Study, folder: str | Path, quick: bool, gallery: str | Path | None = None) -> dict[str, Any]:
    """Run the study in one of its sizes, store everything, and return its record."""
    from coterie.report.figures import rendered
    from coterie.studies.drawing import themed_svg

    settings, size = (study.quick, "quick") if quick else (study.full, "paper")
    began = time.monotonic()
    # Quick sizes multiply small matrices, on which the threads of BLAS mostly wait for each other.
    with threadpool_limits(1 if quick else None):
        numbers = study.run(settings)
    record: dict[str, Any] = _plain(study.record(numbers, settings, size, time.monotonic() - began))
    place = Path(folder) / study.name.replace(" ", "-")
    write_atomically(place / "numbers.parquet", _parquet(numbers))
    content = json.dumps(record, indent=1, ensure_ascii=False).encode()
    write_atomically(place / "study.json", content)
    figure = study.draw(numbers)
    drawing = themed_svg(figure)
    write_atomically(place / "figure.svg", drawing)
    write_atomically(place / "figure.png", rendered(figure, "png"))
    if gallery is not None:
        write_atomically(Path(gallery) / f"{place.name}.svg", drawing)
        write_atomically(Path(gallery) / f"{place.name}.json", content)
        write_gallery_page(gallery)
    return record


def write_gallery_page(gallery: str | Path) -> Path:
    """The page beside the folder, from every record in it."""
    gallery = Path(gallery)
    parts = [HEAD]
    paper = None
    for path in sorted(gallery.glob("*.json")):
        try:
            record = json.loads(path.read_text())
            if record["paper"] != paper:
                paper = record["paper"]
                parts.append(f"## {paper}\n")
            parts.append(_entry(record, f"{gallery.name}/{path.stem}"))
        except (ValueError, KeyError) as error:
            raise CorruptFile(
                f"{path} is no record of a study ({error!r}); delete it and run the study again."
            ) from None
    return write_atomically(gallery.with_suffix(".md"), "\n".join(parts).encode())


def _entry(record: dict[str, Any], stem: str) -> str:
    size = {"quick": "quick size", "paper": "the paper's size"}[record["size"]]
    lines = [
        f"### {record['study']}: {record['title']}\n",
        f"![{record['title']}]({stem}.svg)\n",
        f"{record['remark']} *({', '.join([size, *record['remarks']])}; [record]({stem}.json))*\n",
    ]
    for claim in record["claims"]:
        mark, reason = ("✓", "") if claim["holds"] else ("✗", f" {claim['reason']}")
        lines.append(f"- {mark} {claim['text']} ({claim['evidence']}){reason}")
    return "\n".join(lines) + "\n"


def _parquet(numbers: Numbers) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(numbers.columns()), buffer)
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    """The same with what JSON has no number for as text, and numpy's scalars as Python's."""
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if hasattr(value, "item"):
        value = value.item()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
