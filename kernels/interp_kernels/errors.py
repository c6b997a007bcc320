"""Errors for the caller; each message states the problem, what is known and the remedy."""

from __future__ import annotations


class KernelError(Exception):
    """Base of every error raised for the caller of `interp_kernels`."""


class InvalidAttention(KernelError, ValueError):
    """Attention call whose tensors do not fit together or hold invalid values."""


class InvalidReduction(KernelError, ValueError):
    """Reduction that does not exist, is requested twice, or does not fit the attention call."""


class PredicateError(KernelError):
    """Predicate over positions that raised, or did not return one truth value per position."""


class BackendUnavailable(KernelError, RuntimeError):
    """Backend that is unknown, or does not support the request here."""


class TooLittleMemory(KernelError, MemoryError):
    """Too little memory for the results and the smallest workspace of a backend."""
