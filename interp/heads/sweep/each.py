"""Loop over models: failures are reported and counted, and the other models still run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from interp.core.errors import InterpError, StoreError
from interp.core.protocols import Reporter


def each_model(
    sources: Mapping[str, str], voice: Reporter, work: Callable[[str, str], None]
) -> dict[str, str]:
    """Call `work(source, name)` for every model; return those that failed, with the reason.

    Plain files among folders are ignored, so that `models/*` works.
    """
    ignored = plain_files(sources)
    failed: dict[str, str] = {}
    for source, name in sources.items():
        if source in ignored:
            voice.note(f"{source} is a file, not a model folder; ignored")
            continue
        try:
            work(source, name)
        except StoreError:
            raise
        except InterpError as error:
            failed[name] = str(error)
            voice.error(str(error) if name in str(error) else f"{name}: {error}", error)
        # Any model may run its own code: every error is reported (with --debug, in full), counted
        # and reflected in the exit code, and the other models are still scored.
        except Exception as error:
            text = " ".join(str(error).split())[:300]
            failed[name] = f"{type(error).__name__}: {text}"
            voice.error(f"{name}: {type(error).__name__}: {text} (--debug shows where)", error)
    return failed


def plain_files(sources: Collection[str]) -> list[str]:
    """Return the plain files among sources, which are ignored; none if all sources are files."""
    files = [source for source in sources if Path(source).is_file()]
    return files if len(files) < len(sources) else []


def failure_count(failed: Collection[str], sources: Collection[str]) -> str:
    """Return how many of the models failed, their names, and how many plain files were ignored."""
    n = len(plain_files(sources))
    ignored = f"; {n} plain file{'s were' if n > 1 else ' was'} ignored" if n else ""
    return f"{len(failed)} of {len(sources) - n} models failed: {', '.join(failed)}{ignored}"
