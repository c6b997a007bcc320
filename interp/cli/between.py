"""Files of the commands that compare models, and the metrics that they are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.cli.progress import Voice
from interp.core.declaration import split_names
from interp.core.errors import OptionError
from interp.core.result_folder import folder_for

if TYPE_CHECKING:
    from interp.cli.run import Run
    from interp.core.result import Result
    from interp.core.table import HeadTable


def write_files(
    result: Result, out: Path, name: str, stem: str, about: Mapping[str, Any], voice: Voice
) -> Path:
    """Write page, Parquet and CSV of a result into a folder of its own; return the folder."""
    folder = folder_for(out, name, f"{stem}.html", about)
    for suffix in (".parquet", ".csv", ".html"):
        result.save(folder / f"{stem}{suffix}")
    voice.note(f"{folder}: {stem}.html (open it in a browser), {stem}.parquet, {stem}.csv")
    return folder


def expanded(texts: Sequence[str]) -> list[str]:
    """Return the metrics of a repeatable option, groups dissolved."""
    from interp.core.registry import METRICS

    return METRICS.expand([name for text in texts for name in split_names(text)]) if texts else []


def write_comparison(run: Run, found: Any, stem: str, name: str) -> Path | None:
    """Write page, Parquet and CSV of a comparison, if --out was given; return their folder."""
    if run.out is None:
        return None
    about = {"hashes": [m.content_hash for m in run.made["models"]]} | {
        name: run.values[name] for name in run.declared.given if name != "prompts"
    }
    about["prompts"] = found.provenance["prompts_hash"]
    if "checkpoints" in found.provenance:
        about["hashes"] = [x["content_hash"] for x in found.provenance["checkpoints"]]
    return write_files(found, run.out, name.replace("bundled:", ""), stem, about, run.voice)


def write_curves(voice: Voice, folder: Path, sources: Mapping[str, str], table: HeadTable) -> None:
    """Write the curves of scores over a training run, if the sources are its checkpoints."""
    from interp.heads.checkpoints.emergence import emergence_of_table
    from interp.heads.checkpoints.steps import steps_of

    steps = steps_of(sources)
    if steps is None:
        return
    try:
        emergence = emergence_of_table(table, dict(zip(sources.values(), steps, strict=True)))
    except OptionError as error:
        voice.note(f"no curves over checkpoints: {error}")
        return
    emergence.save(folder / "emergence.html")
    voice.note(f"{folder}: emergence.html, curves over {len(steps)} checkpoints")
