"""One model after another: what fails is told and counted, and the others still get done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from interp.cli.progress import Voice
from interp.core.errors import InterpError, StoreError


def each_model(
    sources: Mapping[str, str], voice: Voice, work: Callable[[str, str], None]
) -> list[str]:
    """Call `work(source, name)` for every model; the names of those that failed.

    Files among folders are passed over, so that `models/*` works.

    Raises:
        StoreError: nothing could be kept any more.
    """
    files = [source for source in sources if Path(source).is_file()]
    failed = []
    for source, name in sources.items():
        if source in files and len(files) < len(sources):
            voice.note(f"{source} is a file, no model folder; passed over")
            continue
        try:
            work(source, name)
        except StoreError:
            raise
        except InterpError as error:
            failed.append(name)
            voice.error(str(error) if name in str(error) else f"{name}: {error}", error)
        # One model of many, of any make, with its own code: whatever it raises is told (with
        # --debug, in full), counted and in the exit code, and the others are still scored.
        except Exception as error:
            failed.append(name)
            told = " ".join(str(error).split())[:300]
            voice.error(f"{name}: {type(error).__name__}: {told} (--debug shows where)", error)
    return failed
