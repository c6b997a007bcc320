"""Attributions of texts by several methods, one after another, and their output files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from interp.cli.inputs import require_tokens
from interp.cli.written import as_given
from interp.core.errors import InterpError

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
    """Yield the attribution of each example by each method, and write the files at the end."""
    results = []
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
            results.append(replace(result, provenance=dict(result.provenance) | {"text": at}))
            yield results[-1]
    if not results:
        return
    from interp.report.tokens import standing_warning, write_attributions

    warning = standing_warning(chosen)
    if warning:
        run.voice.note(warning)
    write_attributions(results, run.out, title=title, command=as_given(), warning=warning)
