"""Run a study, keep its numbers, and show it: files for whoever wants to look closer, and the
gallery's page.

    FOLDER/000-fig1/numbers.parquet    one row per point: panel, label, method, x, y
    FOLDER/000-fig1/study.json         settings with the seed, claims, bills, version, machine,
                                       seconds
    FOLDER/000-fig1/figure.svg, .png
    FOLDER/000-fig1-paper/...          the same at the paper's size

A gallery is a folder with one picture and one record per study and size, and a page beside it that
is written from all of them.
"""

from __future__ import annotations

import io
import json
import math
import re
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from coterie.data.archives import write_atomically
from coterie.errors import CorruptFile
from papers.study import CAUSES, Numbers, Study

PAPER_SIZE = "-paper"
"""What the names of folders and pictures end in at the paper's size."""

HEAD = """# Gallery

`python -m papers`, run in a checkout, draws every figure and writes this page:

```bash
python -m papers all --quick --gallery docs/gallery
python -m papers 002 fig3 --gallery docs/gallery
```

"Quick" is a size for seconds; the second command has the paper's own, shown below the quick one.
Settings, seeds, bills and machine are in the JSON file beside each picture. ✓ is a statement of the paper that these
numbers bear out, ✗ one that they do not; behind each stands what would falsify it. A ✗ names its cause and what shows
it: the **size** (it holds at the paper's, or a larger run says so), the **settings** (as printed they lead elsewhere,
and a run beside it shows where), the **data** (the paper's, or its machines, are not here), or that it is **unsaid**
(nobody can reproduce it with what the paper says). Quick sizes are ours, and so are thresholds, where a statement needs
one.

@SUMMARY@

These were changed after a first look:

| study | changed | why | marks that it turned to ✓ |
|---|---|---|---|
| 000 fig1 | p is compared among the random graphs only | the sentence is about them | degrades as p decreases |
| 000 fig1 | a lattice of four is not compared with the complete graph | it is one | complete converges faster |
| 001 fig1, 4, 9, 10 | Local converges first; graph steps suit the curvature | the paper tunes them | improves faster |
| 001 fig1, 9 | μ and λ of the authors' program, tuned beside | the paper prints none | all but one of Dada-Learned |
| 001 fig9 | these are its Moons'; the notebook for Moons100 is beside | one for both | better than Local, sparser |
| 001 fig4 | β = 1 and μ = 0.1 instead of 10 and 1 | β is that program's | better than Local and Global, twice |
| 001 fig9 | what λ does is asked with β = 1 | with β = 10 distances between models outweigh it | as λ → 0 |
| 001 fig10 | β, μ and λ of that program | the paper prints none | competitors, comparable |
| 001 fig6 | that κ = 1 sends least is asked of published steps alone | exact ones are ours | none |
| 001 fig6 | 20 rounds instead of 60 of published steps, three seeds | a variance needs several | none |
| 001 fig6 | at the paper's size the variance is after 100 rounds of 2,000 | 70 minutes for all of them | none |
| 002 fig2 | all of a1a, 500 rounds; 600 rows, 100 rounds before | now the paper's size | only slightly faster |
| 003 fig3 | J = 1 with a smaller step as well | with the common one it does not converge | none |
| 002 fig3 | the share of time is a mean over four problems | one of four decided | significantly simpler |
| 004 fig2 | 200 epochs instead of 40 | DFW-log changes at 100 | SVA, DFW-log |
| 004 fig3 | 600 epochs instead of 150 | the paper runs until convergence | DFW-2, DFW-log, the error |
| 004 fig4 | one worker's share of the rows is timed, not all shares in turn | the paper's size takes minutes | none |
| 004 fig4 | the objective is drawn for 60 epochs instead of 8 | after 8 it is still above F(0) | more workers |
"""


def reproduce(
    study: Study, folder: str | Path, quick: bool, gallery: str | Path | None = None
) -> dict[str, Any]:
    """Run the study in one of its sizes, store everything, and return its record."""
    settings = study.quick if quick else study.full
    wall, processor = time.monotonic(), time.process_time()
    # Quick sizes multiply small matrices, on which the threads of BLAS mostly wait for each other.
    with threadpool_limits(1 if quick else None):
        numbers = study.run(settings)
    return store(
        study,
        numbers,
        folder,
        quick,
        time.monotonic() - wall,
        time.process_time() - processor,
        gallery,
    )


def store(
    study: Study,
    numbers: Numbers,
    folder: str | Path,
    quick: bool,
    seconds: float,
    processor_seconds: float,
    gallery: str | Path | None = None,
) -> dict[str, Any]:
    """Check the claims, write numbers, record and figure, and return the record."""
    from coterie.report.figures import rendered
    from papers.drawing import themed_svg

    settings, size = (
        (study.full, "paper") if not quick or study.quick == study.full else (study.quick, "quick")
    )
    record: dict[str, Any] = _plain(
        study.record(numbers, settings, size, seconds, processor_seconds)
    )
    place = Path(folder) / (study.name.replace(" ", "-") + ("" if quick else PAPER_SIZE))
    write_atomically(place / "numbers.parquet", _parquet(numbers), public=True)
    content = json.dumps(record, indent=1, ensure_ascii=False).encode()
    write_atomically(place / "study.json", content, public=True)
    figure = study.draw(numbers)
    drawing = themed_svg(figure)
    write_atomically(place / "figure.svg", drawing, public=True)
    write_atomically(place / "figure.png", rendered(figure, "png"), public=True)
    if gallery is not None:
        write_atomically(Path(gallery) / f"{place.name}.svg", drawing, public=True)
        write_atomically(Path(gallery) / f"{place.name}.json", content, public=True)
        write_gallery_page(gallery)
    return record


def write_gallery_page(gallery: str | Path) -> Path:
    """The page beside the folder, from every record in it."""
    gallery = Path(gallery)
    records: dict[Path, dict[str, Any]] = {}
    parts, paper, study = [], None, None
    for path in sorted(gallery.glob("*.json"), key=_in_order):
        try:
            records[path] = json.loads(path.read_text())
            larger = path.with_name(f"{path.stem}{PAPER_SIZE}.json")
            _settle(records[path], json.loads(larger.read_text()) if larger.is_file() else None)
            record = records[path]
            if record["paper"] != paper:
                paper = record["paper"]
                parts.append(f"## {paper}\n")
            if record["study"] != study:
                study = record["study"]
                parts.append(f"### {study}: {record['title']}\n\n{record['remark']}\n")
            parts.append(_entry(record, f"{gallery.name}/{path.stem}"))
        except (ValueError, KeyError) as error:
            raise CorruptFile(
                f"{path} is no record of a study ({error!r}); delete it and run the study again."
            ) from None
    parts.insert(
        0,
        HEAD.replace(
            "@SUMMARY@", summary([c for record in records.values() for c in record["claims"]])
        ),
    )
    return write_atomically(gallery.with_suffix(".md"), "\n".join(parts).encode(), public=True)


def _settle(record: dict[str, Any], larger: dict[str, Any] | None) -> None:
    """Let a record at the paper's size confirm, or refute, that size is why a claim fails at the
    quick one.
    """
    if larger is None or record["size"] == "paper":
        return
    holds = {claim["text"]: claim["holds"] for claim in larger["claims"]}
    for claim in record["claims"]:
        if claim["cause"] == "size" and not claim["holds"]:
            confirmed = holds.get(claim["text"], False)
            claim["reason"] = (
                f"{claim['reason']} It holds at the paper's size, below." if confirmed else ""
            )


def summary(claims: list[dict[str, Any]]) -> str:
    """How many claims hold, how many fail for a known reason, and how many are in between."""
    failing = [claim for claim in claims if not claim["holds"]]
    known = [claim["cause"] for claim in failing if claim["reason"]]
    causes = ", ".join(f"{cause} {known.count(cause)}" for cause in CAUSES if cause in known)
    between = len(failing) - len(known)
    return (
        f"**Of {len(claims)} claims, {len(claims) - len(failing)} hold, {len(known)} fail for a "
        "known reason"
        f"{f' ({causes})' if causes else ''}, and {between or 'none'} are in between.**"
    )


def _in_order(path: Path) -> tuple[list[str], bool]:
    """Figure 10 after Figure 9, the paper's size after the quick one."""
    name = path.stem.removesuffix(PAPER_SIZE)
    return [part.zfill(4) for part in re.split(r"(\d+)", name)], name != path.stem


def _entry(record: dict[str, Any], stem: str) -> str:
    full = "The paper's size" if record["paper"][0].isdigit() else "Full size"
    size = {"quick": "Quick size", "paper": full}[record["size"]]
    elsewhere = any(remark.startswith("on a GPU") for remark in record["remarks"])
    took = (
        f"{record['seconds']:,.0f} s"
        if elsewhere
        else f"{record['processor_seconds']:,.0f} s of processor time"
    )
    lines = [
        f"![{record['title']}: {size.lower()}]({stem}.svg)\n",
        f"**{size}** *({'; '.join([*record['remarks'], took])}; [record]({stem}.json))*\n",
    ]
    for claim in record["claims"]:
        mark, reason = "✓", ""
        if not claim["holds"]:
            mark, reason = (
                "✗",
                f" **{claim['cause'].capitalize()}:** {claim['reason']}" if claim["reason"] else "",
            )
        lines.append(
            f"- {mark} {claim['text']} ({claim['evidence']}){reason} *Fails if {claim['fails_if']}*"
        )
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
