"""Direct logit attribution over many prompts: mean contributions with intervals and nulls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError, UnreadableAttention
from interp.core.prompt_means import prompt_means
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.core.tokens import token_id
from interp.lens.direct import ANOTHER_WRITER
from interp.lens.finish import Finish, finish, model_layers, predicting_stack, row_of
from interp.lens.stream_writers import StreamWriters
from interp.model.content import result_provenance
from interp.model.locate.head_outputs import head_outputs
from interp.model.locate.norms import HELD_NORMS
from interp.model.model_argument import takes_model
from interp.model.precision import why_inexact
from interp.model.sources.placement import require_one_device

if TYPE_CHECKING:
    from interp.model.capture import ActivationCache
    from interp.model.model import Model

Split = Literal["part", "source"]
SOURCES = ("target", "contrast", "first", "self", "other")
Token = str | int
Array = np.ndarray


@takes_model
def direct_logits(
    model: Model,
    prompts: Any,
    targets: Token | Sequence[Token],
    contrasts: Token | Sequence[Token] | None = None,
    *,
    split: Split = "part",
    position: int = -1,
    n_random: int = 8,
    clusters: Sequence[str] | None = None,
    seed: int = 0,
) -> ResultRows:
    """Split a logit over many prompts into mean contributions of heads, MLPs and tokens.

    On each prompt the parts are those of `direct_logit_attribution` and sum to the logit, which is
    checked. With split "source" the rows are heads and the source tokens through which they write:
    the token that is the target, the one that is the contrast, the first token, the reading
    position itself, and all others; the rows of a head sum to its part.

    Args:
        model: the loaded model, with one stack of tokens.
        prompts: texts or token ids.
        targets: one token for all prompts, or one per prompt.
        contrasts: tokens whose logit is subtracted.
        split: "part", or "source".
        position: position at which the logit is read, negative from the end.
        n_random: random tokens of the vocabulary that stand for the target (and as many for the
            contrast) in the null.
        clusters: a label per prompt where prompts share something.
        seed: seed of the random tokens.

    Returns:
        A row per part, with its mean over prompts, its interval, and the same for random tokens;
        `p` tests the paired difference from it, Holm-corrected over rows.

    Reference: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"; Wang et al.
    2022, "Interpretability in the Wild" (arXiv 2211.00593) for its mean over prompts.

    Raises:
        UnreadableAttention: the parts do not sum to the logit, as in post-norm models.
        OptionError: numbers of prompts and tokens differ, or the model has several stacks.
        PromptError: a token or position does not exist.

    Unit: logit.

    Cost: One forward pass per prompt.

    Null: the same contributions to the logits of random tokens of the vocabulary.

    Not for: heads that act through other heads, which contribute nothing here; nor post-norm
    models, which are refused.
    """
    if split not in ("part", "source"):
        raise OptionError(f"unknown split={split!r}; known: part, source")
    if n_random < 1:
        raise OptionError(f"n_random={n_random} is too small; it must be at least 1")
    tokenized, stack = Prompts.of(prompts, model), predicting_stack(model)
    if len(model.stacks) > 1:
        raise OptionError(
            f"{model.name} has stacks {', '.join(model.stacks)}; direct_logits reads models with "
            "one, use direct_logit_attribution for a single prompt"
        )
    first = _tokens(model, targets, len(tokenized), "target")
    second = None if contrasts is None else _tokens(model, contrasts, len(tokenized), "contrast")
    rng, end = np.random.default_rng(seed), None
    values, nulls, about = [], [], []
    parts = StreamWriters(model, stack)
    names = ["attn_out", *(["result"] if split == "part" else ["z", "map", "v"])]
    for i, ids in enumerate(tokenized.ids):
        cache = parts.capture([ids], names)
        end = end or finish(model, cache, stack)
        row = row_of(position, len(ids))
        reading = _Reading(parts, cache, end, row)
        contrast = None if second is None else second[i]
        if contrast == first[i]:
            raise OptionError(f"prompt {i + 1}: the contrast is the target itself, id {contrast}")
        groups = _groups(ids, row, first[i], contrast)
        about, contributions = reading.parts(reading.towards([first[i]], contrast), split, groups)
        drawn = rng.choice(model.d_vocab, (2, n_random))
        null = reading.towards(drawn[0].tolist(), None)
        if second is not None:
            null = null - reading.towards(drawn[1].tolist(), None)
        values.append(contributions)
        nulls.append(reading.parts(null, split, groups)[1])
    clusters = tokenized.clusters if clusters is None else clusters
    provenance = result_provenance(
        model,
        "interp.lens.direct_logits",
        tokenized,
        seed=seed,
        split=split,
        position=position,
        null_draws=n_random,
        norms=HELD_NORMS,
    )
    assert end is not None
    unit = "logit" if end.cap is None else "logit before the cap"
    metric = "direct logit" if split == "part" else "direct logit by source"
    named = [{"metric": metric, "unit": unit} | one for one in about]
    units = ("part", "layer", "head") if split == "part" else ("layer", "head", "source")
    return prompt_means(
        named,
        units,
        np.stack(values, 1),
        np.stack(nulls, 1),
        clusters=clusters,
        provenance=provenance,
    )


def _tokens(model: Model, given: Token | Sequence[Token], n: int, what: str) -> list[int]:
    tokens = [given] * n if isinstance(given, (str, int)) else list(given)
    if len(tokens) != n:
        raise OptionError(f"{len(tokens)} {what}s for {n} prompts; give one per prompt")
    return [token_id(model, token) for token in tokens]


def _groups(
    ids: Sequence[int], row: int, target: int, contrast: int | None
) -> dict[str, list[int]]:
    """Return the source positions of each group; the first name that fits counts."""
    groups: dict[str, list[int]] = {name: [] for name in SOURCES}
    for at, token in enumerate(ids):
        if token == target:
            groups["target"].append(at)
        elif token == contrast:
            groups["contrast"].append(at)
        else:
            groups["first" if at == 0 else "self" if at == row else "other"].append(at)
    return groups


class _Reading:
    """Activations of one prompt, and the parts of any combination of logits at one position."""

    def __init__(self, every: StreamWriters, cache: ActivationCache, end: Finish, row: int) -> None:
        self.model, self.stack, self.sites = every.model, every.stack, every.sites
        require_one_device(self.model.module, self.model.name, "a direct effect")
        self.every, self.cache, self.end, self.row = every, cache, end, row
        self.layers = model_layers(self.model, self.stack)

    def towards(self, tokens: Sequence[int], contrast: int | None) -> Float[Tensor, " d_vocab"]:
        """Return the weights of the mean logit of some tokens, minus that of the contrast."""
        logits = self.cache.logits
        weight = torch.zeros(logits.shape[-1], dtype=torch.double, device=logits.device)
        for token in tokens:
            weight[token] += 1 / len(tokens)
        if contrast is not None:
            weight[contrast] -= 1
        return weight

    def parts(
        self, towards: Tensor, split: Split, groups: dict[str, list[int]]
    ) -> tuple[list[dict[str, Any]], Float[Array, " row"]]:
        """Return the rows, and the contribution of each."""
        last = self.cache["resid_post", self.layers[-1], self.stack][0, self.row]
        direction, bias = self.end.back(towards, last)
        if split == "source":
            return self._by_source(direction, groups)
        about: list[dict[str, Any]] = []
        contributions: list[float] = []
        added = 0.0
        for site in self.sites:
            heads, constant = self.every.along_heads(self.cache, site, self.row, direction)
            added += constant
            for head, x in enumerate(heads.tolist()):
                about.append({"part": f"L{site.layer}H{head}", "layer": site.layer, "head": head})
                contributions.append(x)
        beside = self.every.beside_heads(self.cache, self.row, direction)
        about += [{"part": name} for name in (*beside, "biases")]
        contributions += beside.values()
        self._check([*contributions, added], float(last.double() @ direction))
        return about, np.array([*contributions, bias + added])

    def _check(self, found: list[float], whole: float) -> None:
        """Raise an error if what the layers and the embedding write is not the last stream."""
        total = sum(found)
        if abs(total - whole) > 1e-4 * (sum(map(abs, found)) + 1e-6):
            raise UnreadableAttention(
                f"{self.model.name}: the parts sum to {total:.6g}, but the stream gives "
                f"{whole:.6g}: " + why_inexact(self.model.dtype, ANOTHER_WRITER)
            )

    def _by_source(
        self, direction: Tensor, groups: dict[str, list[int]]
    ) -> tuple[list[dict[str, Any]], Float[Array, " row"]]:
        about: list[dict[str, Any]] = []
        contributions: list[float] = []
        for site in self.sites:
            where = site.layer, self.stack
            z, added = (self.cache[name, *where][0] for name in ("z", "attn_out"))
            outputs = head_outputs(self.model.weights_of(site), z[:, self.row], added[self.row])
            read = outputs.along(direction)
            pattern = self.cache["map", *where][0, :, self.row].double()
            v = self.cache["v", *where][0].double()
            v = v[[site.kv_head(head) for head in range(site.n_heads)]]
            for name, keys in groups.items():
                heads = torch.einsum("hk,hkv,hv->h", pattern[:, keys], v[:, keys], read)
                for head, x in enumerate(heads.tolist()):
                    about.append({"layer": site.layer, "head": head, "source": name})
                    contributions.append(x)
        return about, np.array(contributions)
