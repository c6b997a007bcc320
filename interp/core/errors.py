"""What goes wrong for the caller: one line each, with what is wrong, what is known, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InterpError(Exception):
    """Base of every error meant for the caller; the command line prints it as one line."""


class LoadError(InterpError):
    """A model that cannot be loaded: missing, damaged, untrusted, or not to be read."""


class CheckError(InterpError):
    """A model whose captured attention does not reproduce its own output."""


class UnreadableAttention(LoadError):
    """A model whose attention patterns do not exist or cannot be reached, with the reason."""


class PromptError(InterpError):
    """Prompts that cannot be used: empty, too long, or text without a tokenizer."""


class NonFiniteError(InterpError):
    """NaN or infinity in weights or activations; names the layer."""


class OptionError(InterpError):
    """An option that does not exist or whose value does not fit."""


class StatisticsError(InterpError):
    """Attention whose statistics cannot be computed: names the layer and what the kernels say."""


class StoreError(InterpError):
    """Results that cannot be written or read back."""


class KeptWarning(UserWarning):
    """Something to know about kept results, which stops nothing."""


class DamagedKept(KeptWarning):
    """A kept result that could not be read back and was renamed, to be computed again."""


_RENAMED = {  # kind and name in version 0.1.0
    ("circuit method", "gim"): "gim_patching",
    ("importance", "attribution_patching"): "patching_gradient",
    ("importance", "integrated_gradients"): "aumann_shapley",
}


class DamagedResult(StoreError):
    """A stored result that cannot be read back, with its name and the remedy."""


class OtherVersion(KeptWarning):
    """Stored results that another version of interp made."""


class OtherResults(KeptWarning):
    """Stored results that are shown under other names, or that are not shown."""


class UnknownName(InterpError):
    """A name that is not known, with the nearest ones that are."""

    def __init__(self, kind: str, name: str, known: Iterable[str]):
        known = list(known)
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        listed = f"known: {', '.join(sorted(known))}"
        if now := _RENAMED.get((kind, name.replace("-", "_"))):
            super().__init__(f"{kind} {name!r} is now called {now}")
            return
        hint = f"did you mean {' or '.join(close)}?" if close else listed
        super().__init__(f"unknown {kind} {name!r}; {hint}")
