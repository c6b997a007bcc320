"""Cards of the features of a dictionary: examples, effects on logits, and heads that write them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError, PromptError, UnreadableAttention
from interp.core.prompts import Prompts, bos_id
from interp.core.tokens import separate_words, words
from interp.dictionaries.activations import FIRST, activation_rows
from interp.dictionaries.card_result import FeatureCard, FeatureCards, FeatureExample
from interp.dictionaries.card_weights import WithNull, decoder_shares, logit_effects
from interp.dictionaries.dictionary import Dictionary
from interp.dictionaries.profile import code_counts
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.model import Model

Array = np.ndarray
Peak = tuple[float, int, int, "Array | None"]
"""Code, prompt and position of an example, with the share of each head in its code."""


@takes_model
def feature_cards(
    model: Model,
    dictionary: Dictionary,
    prompts: Any,
    features: Sequence[int] | None = None,
    *,
    k: int = 5,
    tokens: int = 8,
    n_features: int = 20,
    batch_size: int = 8,
    seed: int = 0,
    other_weights: bool = False,
) -> FeatureCards:
    """Describe features by their largest codes, their effects on logits and the heads behind them.

    The effect on logits is that of one unit of code on the direct path: the decoder row (through
    W_O for z) times W_U, with the gain and centring of the final norm folded in, its division by
    the scale of the stream and all later layers left out, and the mean over the vocabulary
    subtracted.

    Args:
        model: a loaded model, or anything that `interp.load` accepts.
        dictionary: the dictionary.
        prompts: texts, ids or `Prompts`, not those that it was trained on.
        features: the features; by default the `n_features` that have a code at most positions.
        k: number of examples, and of tokens at either end of the effects on logits.
        tokens: number of tokens to show before and after the position of an example.
        n_features: number of features where they are not named.
        batch_size: prompts per forward pass.
        seed: seed of shuffling and of the random directions.
        other_weights: accept a model with other weights than the dictionary was trained on.

    Raises:
        OptionError: a feature does not exist, none is active, or a number is out of range.
        DictionaryMismatch: the dictionary belongs to another model, layer or width.
        PromptError: no prompt has more than one token.

    Unit: codes, shares of positions, logits per unit of code, shares of the decoder row's norm.

    Cost: Two or three forward passes of the prompts, and one product with W_U.

    Null: shuffled tokens for codes; 99 random directions of the same norm for logits and heads.

    Not for: what a feature does; ablate it with `ablate_features`.

    Reference: Bricken et al. 2023 ("Towards Monosemanticity") for dashboards of features; Kissane
    et al. 2024 (arXiv 2406.17759) for shares of heads.
    """
    if k < 1 or tokens < 0 or n_features < 1:
        raise OptionError(
            f"k={k}, tokens={tokens}, n_features={n_features}: k and n_features must be at least "
            "1, and tokens at least 0"
        )
    site = dictionary.site_in(model, other_weights=other_weights)
    tokenized = Prompts.of(prompts, model)
    tokenized.check(model)
    if all(len(ids) <= FIRST for ids in tokenized.ids):
        raise PromptError(
            f"no prompt has more than {FIRST} tokens, which are left out; give longer ones"
        )
    if features is None:
        number, _ = code_counts(model, dictionary, tokenized, batch_size)
        order = np.argsort(-number, kind="stable")[:n_features]
        features = [int(f) for f in order if number[f] > 0]
        if not features:
            raise OptionError("no feature has a code on these prompts; give other prompts")
    chosen = dictionary.chosen(features)
    first = bos_id(model)
    keep = first is not None and all(ids[0] == first for ids in tokenized.ids)
    codes, peaks = _read(model, dictionary, chosen, site, tokenized, k, batch_size)
    other, _ = _read(model, dictionary, chosen, site, tokenized.shuffled(seed, keep), k, batch_size)
    notes, logits = [], None
    try:
        logits = logit_effects(model, dictionary, chosen, site, seed)
    except UnreadableAttention as reason:
        notes.append(f"No effects on logits: {reason}.")
    shares = decoder_shares(dictionary, chosen, site, seed)
    if shares is None:
        notes.append("No shares of heads: only decoder rows of z have a part per head.")
    cards = []
    for i, f in enumerate(chosen):
        examples = tuple(_example(model, tokenized, codes, i, peak, tokens) for peak in peaks[i])
        of_heads = [x for *_, x in peaks[i] if x is not None]
        cards.append(
            FeatureCard(
                feature=f,
                examples=examples,
                **_logits(model, logits, i, k),
                **_heads(shares, i),
                of_examples=tuple(np.mean(of_heads, 0).tolist()) if of_heads else (),
            )
        )
    provenance = result_provenance(
        model,
        "interp.dictionaries.feature_cards",
        tokenized,
        seed=seed,
        layer=site.layer,
        dictionary=repr(dictionary),
        features=list(chosen),
        k=k,
        tokens=tokens,
        first=FIRST,
        logits="direct; gain and centring of the final norm folded, scale left out",
    )
    return FeatureCards(
        tuple(cards),
        _measured(codes),
        _measured(other),
        site.layer,
        tuple(notes),
        tokenized.clusters,
        provenance,
    )


def _read(
    model: Model,
    dictionary: Dictionary,
    features: tuple[int, ...],
    site: Site,
    prompts: Prompts,
    k: int,
    batch_size: int,
) -> tuple[list[Float[Array, "pos feature"]], list[list[Peak]]]:
    """Return the codes of each prompt without its first positions, and the k largest by feature."""
    codes: list[Array] = []
    peaks: list[list[Peak]] = [[] for _ in features]
    for batch in model.batches(prompts, batch_size):
        x, _ = activation_rows(model, batch, site, (dictionary.site, dictionary.site))
        batch_codes = dictionary.encode(x)[:, list(features)].double()
        lengths = [max(len(ids) - FIRST, 0) for ids in batch.ids]
        where = [(len(codes) + i, FIRST + p) for i, n in enumerate(lengths) for p in range(n)]
        codes += [part.numpy() for part in batch_codes.split(lengths)]
        for i, f in enumerate(features):
            order = torch.argsort(batch_codes[:, i], descending=True, stable=True)[:k]
            rows = [row for row in order.tolist() if batch_codes[row, i] > 0]
            shares = _shares_of(dictionary, x[rows], f, site)
            new = [
                (float(batch_codes[row, i]), *where[row], None if shares is None else shares[at])
                for at, row in enumerate(rows)
            ]
            peaks[i] = sorted([*peaks[i], *new], key=lambda peak: (-peak[0], *peak[1:3]))[:k]
    return codes, peaks


def _shares_of(
    dictionary: Dictionary, x: Float[Tensor, "row d_in"], feature: int, site: Site
) -> Float[Array, "row head"] | None:
    """Return the share of each head in the absolute parts of a code; None unless z is read."""
    if dictionary.site != "z" or dictionary.is_transcoder:
        return None
    x = x.to(dictionary.W_enc)
    x = x - dictionary.b_dec if dictionary.subtract else x
    parts = (x * dictionary.W_enc[:, feature]).unflatten(1, (site.n_heads, -1)).sum(-1).abs()
    total = parts.sum(1, keepdim=True).clamp_min(torch.finfo(parts.dtype).tiny)
    return (parts / total).double().numpy()


def _measured(codes: list[Float[Array, "pos feature"]]) -> Float[Array, "feature metric prompt"]:
    """Return the mean code where it is not 0, and the share of such positions, on every prompt."""
    measures = []
    for part in codes:
        active = (part != 0).sum(0)
        nothing = np.full(active.shape, math.nan)
        mean = np.divide(part.sum(0), active, out=nothing.copy(), where=active > 0)
        share = active / len(part) if len(part) else nothing
        measures.append(np.stack([mean, share], 1))
    return np.stack(measures, -1)


def _example(
    model: Model, prompts: Prompts, codes: list[Array], feature: int, peak: Peak, tokens: int
) -> FeatureExample:
    code, prompt, position, _ = peak
    ids = prompts.ids[prompt]
    start, stop = max(position - tokens, 0), min(position + tokens + 1, len(ids))
    known = [math.nan] * FIRST + codes[prompt][:, feature].tolist()
    return FeatureExample(
        prompt, position, code, start, words(model, ids[start:stop]), tuple(known[start:stop])
    )


def _logits(model: Model, found: WithNull | None, i: int, k: int) -> dict[str, Any]:
    """Return tokens with the largest and smallest effects, the largest effect, its null and p."""
    if found is None:
        nothing = dict.fromkeys(("logit_effect", "logit_null", "logit_p"), math.nan)
        return {"promoted": (), "suppressed": ()} | nothing
    row, both = found.values[i], []
    for largest in (True, False):
        best = row.topk(min(k, len(row)), largest=largest)
        both.append(
            tuple(
                zip(separate_words(model, best.indices.tolist()), best.values.tolist(), strict=True)
            )
        )
    return {
        "promoted": both[0],
        "suppressed": both[1],
        "logit_effect": float(row.abs().max()),
        "logit_null": found.null(i),
        "logit_p": found.p(i),
    }


def _heads(found: WithNull | None, i: int) -> dict[str, Any]:
    """Return the share of each head in a decoder row, its null and p."""
    if found is None:
        return {"heads": (), "head_null": math.nan, "head_p": math.nan}
    return {
        "heads": tuple(found.values[i].tolist()),
        "head_null": found.null(i),
        "head_p": found.p(i),
    }
