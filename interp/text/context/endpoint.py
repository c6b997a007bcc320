"""Sentences that an answer rests on, of a model behind an endpoint that gives log-probabilities.

Nothing of the model is here but what a completions endpoint returns of a text: its tokens and their
log-probabilities. That is enough to leave sentences out and see what the answer loses.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import numpy as np
from jaxtyping import Bool

from interp.core.errors import LoadError, OptionError, PromptError
from interp.core.protocols import Progress, silent
from interp.core.result_rows import ResultRows
from interp.text.context.ways import VISIBLE, fit_of_sets

KEY = "INTERP_ENDPOINT_KEY"
"""Environment variable with the key that is sent to the endpoint, if it needs one."""
_MOST = 2**24  # bytes of a reply that are read
_NOISE = 0.05  # nats by which the same text may differ between two requests


@dataclass(frozen=True)
class Endpoint:
    """Completions endpoint of a server, such as `http://localhost:8000/v1/completions`.

    Args:
        url: its address; the server must echo the prompt with log-probabilities.
        model: name of the model there.
        timeout: seconds to wait for a reply.
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
            given = reply["choices"][0]["logprobs"]
            tokens = [str(x) for x in given["tokens"]]
            starts = [int(x) for x in given["text_offset"]]
            values = given["token_logprobs"]
            assert len(tokens) == len(starts) == len(values)
        except (KeyError, IndexError, TypeError, ValueError, AssertionError) as error:
            raise LoadError(
                f"{self.url} returned no log-probabilities of the prompt; it must support echo and "
                "logprobs, as completions endpoints do (chat endpoints do not)"
            ) from error
        inside = [i for i, start in enumerate(starts) if len(text) <= start < len(whole)]
        if starts != sorted(starts) or not inside:
            raise LoadError(f"{self.url}: the places of its tokens do not cover the answer")
        said = "".join(tokens[i] for i in inside)
        if starts[inside[0]] != len(text):
            raise PromptError(
                f"a token reaches from the text into the answer {answer!r}; begin the answer with "
                "its space"
            )
        if said != answer:
            raise LoadError(f"{self.url} says that the answer is {said!r}; it was given {answer!r}")
        wrong = [v for v in (values[i] for i in inside) if not _is_log_probability(v)]
        if wrong:
            raise LoadError(f"{self.url} gives {wrong[0]!r} as the log-probability of a token")
        return float(sum(values[i] for i in inside))

    def _reply(self, text: str) -> Any:
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise LoadError(f"{self.url!r} is not an address of http or https")
        asked = {"model": self.model, "prompt": text, "max_tokens": 1, "echo": True,
                 "logprobs": 1, "temperature": 0}  # fmt: skip
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY):
            headers["Authorization"] = f"Bearer {key}"
        request = Request(self.url, json.dumps(asked).encode(), headers)
        try:
            with urlopen(request, timeout=self.timeout) as reply:
                return json.loads(reply.read(_MOST))
        except HTTPError as error:
            with error:
                told = " ".join(error.read(300).decode(errors="replace").split())
            hint = f"; a key is read from {KEY}" if error.code in (401, 403) else ""
            raise LoadError(f"{self.url} answers {error.code}: {told}{hint}") from error
        except (URLError, TimeoutError, OSError) as error:
            raise LoadError(f"{self.url} does not answer: {error}") from error
        except ValueError as error:
            raise LoadError(f"{self.url} did not return JSON: {error}") from error


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
        LoadError: see `Endpoint.log_probability`; or two requests of one text differ by more than
            .05 nats.
        OptionError: there are fewer than two sentences, or no answer.

    Unit: nats.

    Cost: One request per sentence and random set.

    Null: the mean over sentences; of sentences that hold nothing it is near 0.

    Not for: redundant sentences by `leave_one_out`; sentences without which the rest does not read
    on: they are cut from the text, not hidden.

    Reference: Cohen-Wang et al. 2024, "ContextCite: Attributing Model Generation to Context".
    """
    parts = list(texts)
    if len(parts) < 2 or not answer.strip():
        raise OptionError("give at least two sentences, and an answer")
    n, report = len(parts), progress or silent
    if n_ablations < 0 or 0 < n_ablations < 8:
        raise OptionError(f"n_ablations={n_ablations}; give 0, or at least 8 for a fit")
    rng = np.random.default_rng(seed)
    judging = max(4, n_ablations // 4) if n_ablations else 0
    visible = rng.random((n_ablations + judging, n)) < VISIBLE
    sets = np.concatenate([np.ones((2, n), bool), ~np.eye(n, dtype=bool), visible])
    values = np.zeros(len(sets))
    for at, kept in enumerate(sets):
        values[at] = model.log_probability(_kept(parts, kept) + question, answer)
        report("requests", at + 1, len(sets))
    noise = abs(float(values[0] - values[1]))
    if noise > _NOISE:
        raise LoadError(
            f"{model.url}: two requests of the same text differ by {noise:.3g} nats; its "
            "numbers cannot be compared"
        )
    found, sems = {"leave_one_out": values[0] - values[2 : 2 + n]}, {}
    fit = math.nan
    if n_ablations:
        made = fit_of_sets(visible, values[2 + n :], n_ablations, rng)
        found["ablations"], sems["ablations"], fit = made.weights, made.sems, made.held_out
    ways, nothing = tuple(found), np.full(n, np.nan)
    columns = {
        "sentence": [*range(n)] * len(ways), "text": parts * len(ways),
        "metric": np.repeat(ways, n), "score": np.concatenate([found[w] for w in ways]),
        "sem": np.concatenate([sems.get(w, nothing) for w in ways]),
        "null": np.repeat([float(found[w].mean()) for w in ways], n),
        "n": 1, "unit": "nats", "confidence": np.full(n * len(ways), np.nan),
    }  # fmt: skip
    stated = repr((parts, question, answer)).encode()
    about = {
        "model_id": model.model, "source": f"endpoint {model.url}",
        "made_by": "interp.text.context.endpoint_sources", "seed": seed,
        "n_ablations": n_ablations, "prompts_hash": sha256(stated).hexdigest(),
    }  # fmt: skip
    facts = {"name": "endpoint", "fit": fit, "noise": noise, "whole": float(values[0])}
    return ResultRows(
        "AnswerSources", columns, ("sentence",), about, facts,
        why_no_per_prompt="the sentences are those of one prompt",
    )  # fmt: skip


def _kept(parts: Sequence[str], kept: Bool[np.ndarray, " sentence"]) -> str:
    return "".join(text for text, stays in zip(parts, kept, strict=True) if stays)
