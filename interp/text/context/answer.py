"""The sentences that one answer rests on, by several ways, with calibrated confidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from interp.core.errors import OptionError
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.core.ties import largest
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model
from interp.text.chains.chain import Chain, require_answer
from interp.text.context.judge import check_ways, scores_by_way
from interp.text.context.judgement import calibrated
from interp.text.context.ways import BASELINE, FOUND_BY, attention_by_head

if TYPE_CHECKING:
    from interp.core.head import Head
    from interp.model.model import Model

_UNITS = {
    "attention": "attention weight",
    "heads": "attention weight",
    "gradient": "nats",
    "ablations": "nats",
    "leave_one_out": "nats",
}


@takes_model
def answer_sources(
    model: Model,
    chain: Chain,
    *,
    methods: Sequence[str] = FOUND_BY,
    judged: ResultRows | None = None,
    heads: Sequence[Head] | None = None,
    candidates: int | None = None,
    n_ablations: int = 64,
    batch_size: int = 4,
    beyond: bool = False,
    seed: int = 0,
) -> ResultRows:
    """Score the sentences of a prompt by how much its answer rests on them.

    `judge_sources` says how far each way can be trusted on documents with known sources.

    Args:
        model: the model.
        chain: the documents in sentences, with question and answer.
        methods: any of `CONTEXT_WAYS`; `heads` needs `judged` or `heads`.
        judged: result of `judge_sources` on documents with known sources, for the chosen heads and
            the confidence. It is calibrated for documents like those.
        heads: heads of the way `heads`, in place of the judged ones.
        candidates: intervene only on this many sentences, those with most attention; all by
            default. Others score 0 in these ways.
        n_ablations: random sets of hidden sentences.
        batch_size: interventions per forward pass.
        beyond: allow more tokens than the config states.
        seed: seed of the ablations.

    Returns:
        One row per way and sentence: sentence (its index), text, metric (the way), score, sem (of
        ablations), null (the mean score of the prompt's sentences), n, unit, and confidence (the
        calibrated probability that the sentence is a source; NaN where the ways were not judged).
        Facts: name of the prompt; fit, the correlation of the ridge's predictions with ablations
        that it was not fitted on, NaN without that way.

    Raises:
        PromptError: the prompt does not fit the model.
        OptionError: there is no answer, or no heads for the way `heads`.
        UnknownName: a way is not known.

    Unit: attention weight or nats of log odds, by way.

    Cost: One forward pass for attention, one backward pass for the gradient, and one forward pass
    per intervention; only the answer's rows of a pattern are formed.

    Not for: redundant documents by `leave_one_out`: if each of two sentences suffices, neither is
    missed alone.

    Reference: Cohen-Wang et al. 2024, "ContextCite: Attributing Model Generation to Context".

    Null: none of its own; `judge_sources` compares with a random order and with `position`.
    """
    if judged is None and heads is None and "heads" in methods and tuple(methods) == FOUND_BY:
        methods = tuple(w for w in FOUND_BY if w != "heads")
    check_ways(methods)
    require_answer(chain)
    chosen = tuple(heads) if heads is not None else judged.heads_used if judged else ()
    if "heads" in methods and not chosen:
        raise OptionError("the way 'heads' needs heads=, or judged= with chosen heads")
    if candidates is not None and candidates < 1:
        raise OptionError(f"candidates={candidates}: at least one sentence must be tried")
    names, mass, _ = attention_by_head(model, chain, beyond=beyond)
    known = {(h.layer, h.head): i for i, h in enumerate(names)}
    if missing := [str(h) for h in chosen if (h.layer, h.head) not in known]:
        raise OptionError(f"{model.name} has no head {', '.join(missing)} with causal attention")
    scores, sems, fit = scores_by_way(
        model,
        chain,
        mass,
        ways=methods,
        picked=[known[h.layer, h.head] for h in chosen],
        candidates=candidates,
        ablations=n_ablations,
        batch_size=batch_size,
        beyond=beyond,
        seed=seed,
    )
    scores.pop(BASELINE)
    ranked = judged.columns["metric"] if judged is not None else ()
    sure = {w: calibrated(judged, w, s) for w, s in scores.items() if judged and w in ranked}
    provenance = result_provenance(
        model,
        "interp.text.context.answer_sources",
        Prompts((chain.prompt,), "document"),
        seed=seed,
        engine="streamed",
        heads=[str(h) for h in chosen],
        candidates=candidates,
        ablations=n_ablations,
        beyond=beyond,
        calibrated_on=None if judged is None else judged.provenance.get("prompts_hash"),
    )
    nothing, ways = np.full(len(chain.texts), np.nan), tuple(scores)
    columns = {
        "sentence": [*range(len(chain.texts))] * len(ways),
        "text": [*chain.texts] * len(ways),
        "metric": np.repeat(ways, len(chain.texts)),
        "score": np.concatenate([scores[w] for w in ways]),
        "sem": np.concatenate([sems.get(w, nothing) for w in ways]),
        "null": np.repeat([float(scores[w].mean()) for w in ways], len(chain.texts)),
        "n": 1,
        "unit": np.repeat([_UNITS[w] for w in ways], len(chain.texts)),
        "confidence": np.concatenate([sure.get(w, nothing) for w in ways]),
    }
    return ResultRows(
        "AnswerSources",
        columns,
        ("sentence",),
        provenance,
        {"name": chain.name, "fit": fit},
        why_no_per_prompt="the sentences are those of one prompt",
    )


def answer_sources_summary(found: ResultRows) -> str:
    """Return the first sentence by each way."""
    parts = {way: found[way] for way in dict.fromkeys(found.metric.tolist())}
    each = ", ".join(f"{way} {x.sentence[largest(x.score)]}" for way, x in parts.items())
    return f"AnswerSources of {found.name}, first sentence by {each}"


present("AnswerSources", summary=answer_sources_summary)
