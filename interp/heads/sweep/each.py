"""Loop over models: failures are reported and counted, and the other models still run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from interp.core.errors import InterpError, StoreError
from interp.core.protocols import Reporter


def each_model(
    sources: Mapping[str, str], voice: Reporter, work: Callable[[str, str], None]
) -> dict[str, str]:
    """Call `work(source, name)` for every model; return those that failed, with the reason.

    Plain files among folders are ignored, so that `models/*` works.

    Raises:
        StoreError: results can no longer be stored.
    """
    files = [source for source in sources if Path(source).is_file()]
    failed: dict[str, str] = {}
    for source, name in sources.items():
        if source in files and len(files) < len(sources):
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
