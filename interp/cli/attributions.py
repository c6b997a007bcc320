"""Attributions of texts by several methods, one after another, and their output files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.cli.texts import require_tokens
from interp.cli.written import as_given
from interp.core.errors import InterpError
from interp.core.files import write_atomically

if TYPE_CHECKING:
    from interp.attribution.declaration import BoundMethod
    from interp.attribution.example import Example
    from interp.attribution.result import Attribution
    from interp.cli.run import Run

ENDS = (".html", ".json", ".csv")


def attributions(
    run: Run,
    examples: Sequence[tuple[int, str, Callable[[], Example]]],
    chosen: Sequence[BoundMethod],
    title: str,
    *,
    strict: bool = False,
) -> Iterator[Attribution]:
    """Yield the attribution of each example by each method, and write the files at the end.

    Args:
        run: the run; what fails is reported there, unless it is all there is to do.
        examples: for each the number of the text, the text, and what makes the example.
        chosen: the methods.
        title: title of the page.
        strict: raise the first error, in place of going on with the other texts and methods.
    """
    found = []
    for at, text, make in examples:
        try:
            example = make()
            require_tokens(example.special, text)
        except InterpError as error:
            if strict or len(examples) == 1:
                raise
            run.failed += 1
            run.voice.error(f"text {at + 1}: {error}", error)
            continue
        for method in chosen:
            try:
                result = method.of(example)
            except InterpError as error:
                if strict or len(examples) == len(chosen) == 1:
                    raise
                run.failed += 1
                run.voice.error(f"text {at + 1}, {method.label}: {error}", error)
                continue
            found.append(replace(result, provenance=dict(result.provenance) | {"text": at}))
            yield found[-1]
    warning = standing_warning(chosen) if found else ""
    if warning:
        run.voice.note(warning)
    if found:
        write_attributions(found, run.out, title=title, warning=warning)


def write_attributions(
    found: Sequence[Attribution],
    out: Mapping[str, Path],
    *,
    title: str,
    warning: str,
) -> None:
    """Write the requested files, each atomically."""
    if html := out.get(".html"):
        from interp.report.tokens import attribution_page

        page = attribution_page(found, title=title, command=as_given(), warning=warning)
        write_atomically(html, page.encode())
    if json_file := out.get(".json"):
        whole: dict[str, Any] = {"warning": warning, "attributions": [f.to_dict() for f in found]}
        write_atomically(json_file, (json.dumps(whole, indent=1, default=str) + "\n").encode())
    if csv := out.get(".csv"):
        import pandas as pd

        frames = [f.wide().assign(text=f.provenance.get("text", 0)) for f in found]
        write_atomically(csv, pd.concat(frames).to_csv(index=False).encode())


def standing_warning(chosen: Sequence[BoundMethod]) -> str:
    """Return the warning from `bundled:deceive` about the chosen pattern-based methods."""
    from interp.attribution.evaluation.deceived import deceived

    reading = [c for c in chosen if c.method.needs == "patterns"]
    return deceived(reading, 8).warning if reading else ""
