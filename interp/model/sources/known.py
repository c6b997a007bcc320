"""Models that cannot be loaded, found by name alone before torch is imported."""

from __future__ import annotations

import re
from pathlib import Path

from interp.core.errors import LoadError
from interp.model.sources.folder import refuse_address
from interp.planted import KINDS, check_known

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


def require_known(source: str) -> None:
    """Check a model by its name alone; what only its files or the hub can tell is not checked."""
    refuse_address(source)
    kind, colon, name = source.partition(":")
    if colon and kind in KINDS:
        check_known(kind, name)
    elif colon and kind == "bundled":
        from interp import bundled

        bundled.path(name)
    elif Path(source).expanduser().exists() or source.startswith((".", "/", "~")):
        from interp.model.sources.folder import require_model_folder

        require_model_folder(Path(source).expanduser())
    elif why := _not_on_hub(source):
        raise LoadError(
            f"{source!r} is neither a folder nor a model that the hub or its cache can give "
            f"({why}); check the name, the network and your access"
        )


def require_listed(name: str) -> None:
    """Ask the hub whether it has a model that its cache does not hold; no answer is no error."""
    from huggingface_hub import constants, errors, model_info

    held = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"
    if constants.HF_HUB_OFFLINE or held.is_dir():
        return
    try:
        model_info(name, timeout=5)
    except errors.RepositoryNotFoundError as error:
        raise LoadError(f"{name!r} is neither a folder nor a model of the hub") from error
    except (errors.HfHubHTTPError, OSError):  # loading it says what is wrong
        return


def _not_on_hub(name: str) -> str:
    if not _HUB_ID.fullmatch(name):
        return "a hub id is NAME or OWNER/NAME, in letters, digits, _, - and ."
    from huggingface_hub import constants

    held = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"
    return "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE and not held.is_dir() else ""
