"""Sentences that an answer rests on, of a model behind an endpoint that gives log-probabilities.

Nothing of the model is here but what a completions endpoint returns of a text: its tokens and their
log-probabilities. That is enough to leave sentences out and see what the answer loses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from jaxtyping import Bool

from interp import __version__
from interp.core.errors import LoadError, OptionError, PromptError
from interp.core.protocols import Progress, silent
from interp.core.request import asked
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.core.ties import ordered
from interp.text.context.ways import VISIBLE, fit_of_sets

_NOISE = 0.05  # nats by which the same text may differ between two requests


@dataclass(frozen=True)
class Endpoint:
    """Completions endpoint of a server, such as `http://localhost:8000/v1/completions`.

    Args:
        url: its address; the server must echo the prompt with log-probabilities.
        model: name of the model there.
        timeout: seconds to wait for a reply, as a whole.
    """

    url: str
    model: str
    timeout: float = 60.0

    def log_probability(self, text: str, answer: str) -> float:
        """Return the log-probability of an answer after a text, in nats.

        Raises:
            LoadError: the server does not answer, refuses, or its reply is not one of this kind or
                does not fit the text.
            PromptError: a token reaches from the text into the answer.
        """
        whole = text + answer
        reply = self._reply(whole)
        try:
            logprobs = reply["choices"][0]["logprobs"]
            tokens = [str(x) for x in logprobs["tokens"]]
            starts = [int(x) for x in logprobs["text_offset"]]
            values = logprobs["token_logprobs"]
            assert len(tokens) == len(starts) == len(values)
        except (KeyError, IndexError, TypeError, ValueError, AssertionError) as error:
            raise LoadError(
                f"{self.url} returned no log-probabilities of the prompt; it must support echo and "
                "logprobs, as completions endpoints do (chat endpoints do not)"
            ) from error
        inside = [i for i, start in enumerate(starts) if len(text) <= start < len(whole)]
        if starts != sorted(starts) or not inside:
            raise LoadError(f"{self.url}: the places of its tokens do not cover the answer")
        returned = "".join(tokens[i] for i in inside)
        if starts[inside[0]] != len(text):
            raise PromptError(
                f"a token reaches from the text into the answer {answer!r}; begin the answer with "
                "its space"
            )
        if returned != answer:
            raise LoadError(
                f"{self.url} says that the answer is {returned!r}; it was given {answer!r}"
            )
        wrong = [v for v in (values[i] for i in inside) if not _is_log_probability(v)]
        if wrong:
            raise LoadError(f"{self.url} gives {wrong[0]!r} as the log-probability of a token")
        return float(sum(values[i] for i in inside))

    def repeated(self, text: str, answer: str) -> tuple[float, float]:
        """Return the log-probability of an answer, and by how much a second request differs.

        Raises:
            LoadError: it differs by more than .05 nats; or see `log_probability`.
            PromptError: see `log_probability`.
        """
        first, second = (self.log_probability(text, answer) for _ in range(2))
        if (noise := abs(first - second)) > _NOISE:
            raise LoadError(
                f"{self.url}: two requests of the same text differ by {noise:.3g} nats; its "
                "numbers cannot be compared"
            )
        return first, noise

    def _reply(self, text: str) -> Any:
        return asked(
            self.url,
            {
                "model": self.model,
                "prompt": text,
                "max_tokens": 1,
                "echo": True,
                "logprobs": 1,
                "temperature": 0,
            },
            self.timeout,
        )


def _is_log_probability(x: Any) -> bool:
    return isinstance(x, (int, float)) and math.isfinite(x) and x <= 1e-6


def endpoint_sources(
    model: Endpoint,
    texts: Sequence[str],
    question: str,
    answer: str,
    *,
    n_ablations: int = 32,
    seed: int = 0,
    progress: Progress | None = None,
) -> ResultRows:
    """Score sentences by how much the log-probability of an answer rests on them.

    Args:
        model: where the model is.
        texts: the context in sentences, with their spaces.
        question: what stands between context and answer.
        answer: the answer, which begins with its space.
        n_ablations: random sets of sentences that are left out, for the fit; 0 for none.
        seed: seed of the sets.
        progress: called after each request.

    Returns:
        One row per way and sentence: sentence (its index), text, metric, score, sem (of the fit),
        null (the mean score of the sentences), n, unit. `leave_one_out` is what the answer loses
        without the sentence; `ablations` is the weight of a ridge on random sets (ContextCite).
        Facts: fit, the correlation of the ridge's predictions with sets that it was not fitted on;
        noise, the difference of the whole prompt between two requests; whole, its log-probability.

    Raises:
        LoadError: see `Endpoint.repeated`.
        OptionError: there are fewer than two sentences, or no answer.

    Unit: nats.

    Cost: One request per sentence and random set.

    Null: the mean over sentences; of sentences that hold nothing it is near 0.

    Not for: redundant sentences by `leave_one_out`; sentences without which the rest does not read
    on: they are cut from the text, not hidden.

    Reference: Cohen-Wang et al. 2024, "ContextCite: Attributing Model Generation to Context".
    """
    parts = _sentences(texts, answer)
    n, report = len(parts), progress or silent
    if n_ablations < 0 or 0 < n_ablations < 8:
        raise OptionError(f"n_ablations={n_ablations}; give 0, or at least 8 for a fit")
    rng = np.random.default_rng(seed)
    judging = max(4, n_ablations // 4) if n_ablations else 0
    visible = rng.random((n_ablations + judging, n)) < VISIBLE
    whole, noise = model.repeated("".join(parts) + question, answer)
    sets = np.concatenate([~np.eye(n, dtype=bool), visible])
    values = np.zeros(len(sets))
    for at, shown in enumerate(sets):
        values[at] = model.log_probability(_kept(parts, shown) + question, answer)
        report("requests", at + 3, len(sets) + 2)
    scores, sems = {"leave_one_out": whole - values[:n]}, {}
    fit = math.nan
    if n_ablations:
        ablation = fit_of_sets(visible, values[n:], n_ablations, rng)
        scores["ablations"], sems["ablations"], fit = (
            ablation.weights,
            ablation.sems,
            ablation.held_out,
        )
    ways, nothing = tuple(scores), np.full(n, np.nan)
    columns = {
        "sentence": [*range(n)] * len(ways),
        "text": parts * len(ways),
        "metric": np.repeat(ways, n),
        "score": np.concatenate([scores[w] for w in ways]),
        "sem": np.concatenate([sems.get(w, nothing) for w in ways]),
        "null": np.repeat([float(scores[w].mean()) for w in ways], n),
        "n": 1,
        "unit": "nats",
        "confidence": np.full(n * len(ways), np.nan),
    }
    stated = (parts, question, answer)
    about = _provenance(model, "endpoint_sources", stated, seed=seed, n_ablations=n_ablations)
    facts = {"name": "endpoint", "fit": fit, "noise": noise, "whole": whole}
    return ResultRows(
        "AnswerSources",
        columns,
        ("sentence",),
        about,
        facts,
        why_no_per_prompt="the sentences are those of one prompt",
    )


def endpoint_faithfulness(
    model: Endpoint,
    texts: Sequence[str],
    question: str,
    answer: str,
    scores: Sequence[float],
    *,
    n_random: int = 8,
    seed: int = 0,
    progress: Progress | None = None,
) -> ResultRows:
    """Judge scores of sentences by what the answer loses when sentences are removed in their order.

    Args:
        model: where the model is.
        texts: the context in sentences, with their spaces.
        question: what stands between context and answer.
        answer: the answer, which begins with its space.
        scores: score of each sentence, such as those of `endpoint_sources`; higher is removed
            first.
        n_random: random orders to compare with.
        seed: seed of the orders.
        progress: called after each request.

    Returns:
        One row per metric: metric, score, null (the mean over the random orders), null_sem, n (1,
        the prompt), unit. `comprehensiveness` is the mean fall of the log-probability when
        the first sentences of the order are removed, over all numbers of sentences but none and
        all; `sufficiency` is the mean fall when only these are kept (lower is better). Facts:
        noise, the difference of the whole prompt between two requests; n_random, the orders.

    Raises:
        LoadError: see `Endpoint.repeated`.
        OptionError: there are fewer than two sentences, no answer, fewer than two random orders, or
            another number of scores than of sentences, or one that is not finite.

    Unit: nats.

    Cost: At most two requests per sentence and order.

    Null: the mean over random orders.

    Not for: sentences without which the rest does not read on: they are cut from the text.

    Reference: DeYoung et al. 2020, "ERASER: A Benchmark to Evaluate Rationalized NLP Models".
    """
    parts, relevance = _sentences(texts, answer), np.asarray(scores, dtype=float)
    if relevance.shape != (len(parts),) or not np.isfinite(relevance).all():
        raise OptionError(f"give one finite score for each of the {len(parts)} sentences")
    if n_random < 2:
        raise OptionError(f"n_random={n_random}; give at least 2 orders to compare with")
    n, report = len(parts), progress or silent
    rng = np.random.default_rng(seed)
    orders = [
        np.array(ordered(relevance), dtype=int),
        *(rng.permutation(n) for _ in range(n_random)),
    ]
    whole, noise = model.repeated("".join(parts) + question, answer)
    falls: dict[bytes, float] = {}

    def fall(kept: Bool[np.ndarray, " sentence"]) -> float:
        if (key := kept.tobytes()) not in falls:
            text = _kept(parts, kept) + question
            falls[key] = whole - model.log_probability(text, answer)
            report("requests", len(falls) + 2, len(orders) * (2 * n - 2) + 2)
        return falls[key]

    losses = np.zeros((2, len(orders)))
    for at, order in enumerate(orders):
        first = [np.isin(np.arange(n), order[:number]) for number in range(1, n)]
        losses[:, at] = np.mean([[fall(~some), fall(some)] for some in first], axis=0)
    random = losses[:, 1:]
    columns = {
        "metric": ["comprehensiveness", "sufficiency"],
        "score": losses[:, 0],
        "null": random.mean(1),
        "null_sem": standard_error(random),
        "n": 1,
        "unit": "nats",
    }
    stated = (parts, question, answer, relevance.tolist())
    about = _provenance(model, "endpoint_faithfulness", stated, seed=seed, n_random=n_random)
    return ResultRows(
        "EndpointFaithfulness",
        columns,
        ("metric",),
        about,
        {"noise": noise, "n_random": n_random},
        why_no_per_prompt="the sentences are those of one prompt",
    )


def _sentences(texts: Sequence[str], answer: str) -> list[str]:
    """Return the sentences as a list."""
    if len(texts) < 2 or not answer.strip():
        raise OptionError("give at least two sentences, and an answer")
    return list(texts)


def _provenance(model: Endpoint, name: str, stated: Any, **options: Any) -> dict[str, Any]:
    return {
        "model_id": model.model,
        "source": f"endpoint {model.url}",
        "made_by": f"interp.text.context.{name}",
        **options,
        "prompts_hash": sha256(repr(stated).encode()).hexdigest(),
        "versions": {"interp": __version__},
    }


def _kept(parts: Sequence[str], kept: Bool[np.ndarray, " sentence"]) -> str:
    return "".join(text for text, stays in zip(parts, kept, strict=True) if stays)
