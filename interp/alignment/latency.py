"""Latency of simultaneous translation: how much source each target word waited for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from interp.core.errors import OptionError


def wait_k_delays(k: int, source: int, target: int) -> list[int]:
    """Return how many source words the wait-k policy has read before each target word.

    Raises:
        OptionError: a number is below 1.
    """
    if min(k, source, target) < 1:
        raise OptionError(f"k={k}, source={source}, target={target}: all are at least 1")
    return [min(k + t, source) for t in range(target)]


def average_lagging(delays: Sequence[float], source: float, reference: int | None = None) -> float:
    """Return the mean number of source words by which the output lags behind an ideal one (AL).

    Averaged up to the first word that waited for the whole source. For wait-k and equal lengths it
    is k; for waiting until the end it is the source length.

    Args:
        delays: source words read before each target word.
        source: length of the source.
        reference: length of the reference translation; by default that of the output.

    Reference: Ma et al. 2019, "STACL: Simultaneous Translation with Implicit Anticipation".

    Raises:
        OptionError: delays are empty, negative or decrease, or a length is not positive.
    """
    return _lagging(delays, source, len(delays) if reference is None else reference)


def length_adaptive_average_lagging(
    delays: Sequence[float], source: float, reference: int
) -> float:
    """Return average lagging with the longer of output and reference (LAAL).

    An output longer than the reference does not gain from it. For arguments and errors see
    `average_lagging`.

    Reference: Papi et al. 2022, "Over-Generation Cannot Be Rewarded".
    """
    return _lagging(delays, source, max(reference, len(delays)))


def average_proportion(delays: Sequence[float], source: float) -> float:
    """Return the mean share of the source that was read before a target word, 0 to 1 (AP).

    For arguments and errors see `average_lagging`.

    Reference: Cho and Esipova 2016, "Can Neural Machine Translation Do Simultaneous Translation?".
    """
    checked = _checked(delays, source, len(delays))
    return float(checked.sum() / (source * len(checked)))


def differentiable_average_lagging(delays: Sequence[float], source: float) -> float:
    """Return average lagging over all words, each at least one step after the one before (DAL).

    For arguments and errors see `average_lagging`.

    Reference: Cherry and Foster 2019, "Thinking Slow about Latency Evaluation for Simultaneous
    Machine Translation".
    """
    checked = _checked(delays, source, len(delays))
    step = source / len(checked)
    total, before = 0.0, 0.0
    for t, delay in enumerate(checked.tolist()):
        before = delay if t == 0 else max(delay, before + step)
        total += before - t * step
    return total / len(checked)


def _lagging(delays: Sequence[float], source: float, target: int) -> float:
    checked = _checked(delays, source, target)
    if checked[0] > source:
        return float(checked[0])
    whole = np.flatnonzero(checked >= source)
    last = int(whole[0]) + 1 if len(whole) else len(checked)
    return float(np.mean(checked[:last] - np.arange(last) * source / target))


def _checked(delays: Sequence[float], source: float, target: int) -> np.ndarray:
    values = np.asarray(delays, float)
    if not len(values) or values.min() < 0 or (np.diff(values) < 0).any():
        raise OptionError("delays are one number per target word, from 0 on, that never decrease")
    if source <= 0 or target < 1:
        raise OptionError(f"lengths of source ({source}) and target ({target}) must be positive")
    return values
