"""Errors and warnings for the caller; each message is one line and names the remedy."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


class InterpError(Exception):
    """Base of every error meant for the caller; the command line prints it as one line."""


class LoadError(InterpError):
    """Model that cannot be loaded: missing, damaged, untrusted or unsupported."""


class CheckError(InterpError):
    """Model whose captured attention does not reproduce its own output."""


class UnreadableAttention(LoadError):
    """Model without readable attention patterns; the message gives the reason."""


class PromptError(InterpError):
    """Prompts that cannot be used: empty, too long, or text without a tokenizer."""


class NonFiniteError(InterpError):
    """NaN or infinity in weights or activations; the message names the layer."""


class OptionError(InterpError):
    """Option that does not exist or has an invalid value."""


class StatisticsError(InterpError):
    """Attention whose statistics cannot be computed; names the layer and the kernels' error."""


class StoreError(InterpError):
    """Results that cannot be written or read back."""


class KeptWarning(UserWarning):
    """Warning about stored results or installed packages that does not stop the run."""


class DamagedKept(KeptWarning):
    """Stored result that could not be read, was renamed and will be recomputed."""


class NotKept(KeptWarning):
    """Result that could not be kept for a later run, which computes it again."""


class NotUsable(KeptWarning):
    """Declaration of an installed package that a group of names has to leave out."""


class DamagedResult(StoreError):
    """Stored result that cannot be read back, with its name and the remedy."""


class PageOmitted(KeptWarning):
    """Warning that the page of a results folder could not be written; its tables were."""


class OtherVersion(KeptWarning):
    """Stored results that another version of interp made."""


class OtherResults(KeptWarning):
    """Stored results that are shown under other names, or not shown."""


FEW = 30  # names that are listed beside a weak guess


class UnknownName(InterpError):
    """Unknown name, reported with the closest known ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str]):
        known = list(known)
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        listed = f"known: {', '.join(sorted(known))}"
        hint = f"did you mean {' or '.join(close)}?" if close else listed
        if close and len(known) <= FEW and not difflib.get_close_matches(name, close, cutoff=0.7):
            hint += f" ({listed})"  # the guess is weak
        super().__init__(f"unknown {kind} {name!r}; {hint}")


class UnknownChoice(UnknownName, OptionError):
    """Name that is not among those that a parameter takes."""


def is_panic(error: BaseException) -> bool:
    """Return True for the panic of a package in Rust (tokenizers), which is no `Exception`."""
    return type(error).__name__ == "PanicException"


def error_line(error: BaseException) -> str:
    """Format an error as one line, in terms of a config file instead of Python's types."""
    text = re.sub(r"\s+", " ", str(error)).strip() or type(error).__name__
    text = re.sub(r"<class '([\w.]+)'>", r"\1", text)
    return re.sub(r"'NoneType' object|NoneType", "null", text)[:300]
