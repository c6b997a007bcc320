"""What a caller can get wrong: one line each, saying what is wrong, what is known, what to do."""

from __future__ import annotations


class KernelError(Exception):
    """Base of every error raised for the caller of `interp_kernels`."""


class InvalidAttention(KernelError, ValueError):
    """An attention call whose tensors do not fit together or hold values that cannot be used."""


class InvalidReduction(KernelError, ValueError):
    """A reduction that does not exist, is asked for twice, or does not fit the attention call."""


class PredicateError(KernelError):
    """A predicate over positions that raised, or did not return one truth value per position."""


class BackendUnavailable(KernelError, RuntimeError):
    """A backend that is not known, or cannot do here what it is asked for."""


class TooLittleMemory(KernelError, MemoryError):
    """Less memory than the results and the smallest workspace of a backend need."""
