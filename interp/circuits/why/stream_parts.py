"""The residual stream as a sum of parts: token, position, heads, MLPs, features and biases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from interp.core.errors import OptionError
from interp.model.calls.call import precise
from interp.model.locate.find_layout import layouts
from interp.model.locate.weights import embeddings

if TYPE_CHECKING:
    from jaxtyping import Float

    from interp.circuits.linear_scores import LinearScores
    from interp.model.calls.sites import Site

EMBED, POSITION, BIAS, OTHER = "embed", "pos_embed", "bias", "other features"
FIRST = "first stream"  # where layers without softmax attention come before the first one
MOST_FEATURES = 256  # features with a part of their own; the rest are one part
SITES_OF_FEATURES = ("resid_pre", "resid_post")
_SMALL = 1e-5  # relative size of a difference that is rounding


@runtime_checkable
class StreamDictionary(Protocol):
    """Features of the residual stream: `x = encode(x) @ W_dec + b_dec + error`.

    `site` is "resid_pre" or "resid_post" of block `layer`. A sparse autoencoder has these members.
    """

    W_dec: Float[Tensor, "feature d_model"]
    b_dec: Float[Tensor, " d_model"]
    layer: int
    site: str

    def encode(self, x: Float[Tensor, "*at d_model"]) -> Float[Tensor, "*at feature"]:
        """Return the activation of every feature."""
        ...


@dataclass(frozen=True, eq=False)
class Parts:
    """Named parts that sum to what a reader reads; the last belongs to no writer (biases)."""

    names: tuple[str, ...]
    x: Float[Tensor, "batch pos part d_model"]


@dataclass(frozen=True, eq=False)
class StreamFeatures:
    """Features of one dictionary in one batch, in place of all writers before its layer.

    Args:
        names: Features, the other features if there are more, and the error.
        x: Their parts of the stream.
        bias: The decoder's bias.
        ids: Numbers of the features that have a name.
        acts: Their activations.
        written: Number of writers that they stand for.
    """

    names: tuple[str, ...]
    x: Float[Tensor, "batch pos part d_model"]
    bias: Float[Tensor, " d_model"]
    ids: tuple[int, ...]
    acts: Float[Tensor, "batch pos feature"]
    written: int


class StreamParts:
    """Parts of the stream before every reader of one batch of prompts.

    Args:
        scores: The decomposed run.
        dictionaries: Dictionaries of the stream; after the layer of one, its features and its error
            stand in place of the writers before it.
        most: Number of features with a part of their own.

    Raises:
        OptionError: A dictionary is of another site, layer or width.
    """

    def __init__(
        self,
        scores: LinearScores,
        dictionaries: Sequence[StreamDictionary] = (),
        most: int = MOST_FEATURES,
    ) -> None:
        self.scores = scores
        self.names, self.written = _split_embedding(scores)
        self.added = len(self.names) - len(scores.writers)  # 1 if positions are apart
        read = scores.sites
        self.features: dict[int, StreamFeatures] = {}  # by order of the site that first reads them
        for one in dictionaries:
            order = _order_of(one, read, scores.model.name)
            if order in self.features:
                raise OptionError(f"two dictionaries stand at layer {read[order].layer}; give one")
            self.features[order] = self._features(one, order, most)

    def before(self, site: Site) -> Parts:
        """Return the parts of the stream that the attention of a layer reads."""
        return self.first(self.scores.before[site], self.scores.constant[site], site)

    def first(
        self,
        writers: int,
        constant: Float[Tensor, "batch pos d_model"],
        site: Site,
        *,
        below: bool = False,
    ) -> Parts:
        """Return the parts that the first writers and the biases give."""
        n = writers + self.added
        order = self.scores.sites.index(site)
        at = max((i for i in self.features if i < order + (not below)), default=None)
        if at is None:
            x = torch.cat([self.written[:, :, :n], constant[:, :, None]], 2)
            return Parts((*self.names[:n], BIAS), x)
        f = self.features[at]
        rest = constant - self.scores.constant[self.scores.sites[at]] + f.bias
        later = slice(f.written + self.added, n)
        x = torch.cat([f.x, self.written[:, :, later], rest[:, :, None]], 2)
        return Parts((*f.names, *self.names[later], BIAS), x)

    def _features(self, one: StreamDictionary, order: int, most: int) -> StreamFeatures:
        site = self.scores.sites[order]
        given = self.scores.cache["resid_pre", site.layer]
        weight, bias = precise(one.W_dec.detach()), precise(one.b_dec.detach())
        if weight.dim() != 2 or weight.shape[1] != given.shape[-1]:
            raise OptionError(
                f"W_dec has the shape {list(weight.shape)}; the stream of "
                f"{self.scores.model.name} needs [feature, {given.shape[-1]}]"
            )
        with torch.no_grad():
            acts = precise(one.encode(given))
        size = acts.abs().amax((0, 1))
        ids = [int(i) for i in size.argsort(descending=True)[:most] if size[i] > 0]
        whole = acts @ weight
        parts = acts[..., ids, None] * weight[ids]
        names = [f"L{site.layer}F{i}" for i in ids]
        x = [parts]
        if int((size > 0).sum()) > len(ids):
            x.append((whole - parts.sum(2))[:, :, None])
            names.append(f"L{site.layer} {OTHER}")
        x.append((precise(given) - whole - bias)[:, :, None])
        names.append(f"L{site.layer} error")
        n = self.scores.before[site]
        return StreamFeatures(tuple(names), torch.cat(x, 2), bias, tuple(ids), acts[..., ids], n)


def _order_of(one: Any, sites: Sequence[Site], model: str) -> int:
    if one.site not in SITES_OF_FEATURES:
        raise OptionError(
            f"the dictionary reads {one.site}; parts of the stream can be features of "
            f"{' or '.join(SITES_OF_FEATURES)}"
        )
    layer = int(one.layer) + (one.site == "resid_post")
    orders = [i for i, site in enumerate(sites) if site.layer == layer]
    if not orders:
        raise OptionError(
            f"no attention of {model} reads the {one.site} of layer {one.layer}; layers with "
            f"attention: {', '.join(str(s.layer) for s in sites)}"
        )
    return orders[0]


def _split_embedding(
    scores: LinearScores,
) -> tuple[tuple[str, ...], Float[Tensor, "batch pos writer d_model"]]:
    """Split the first stream into tokens and positions where it is a plain sum of them."""
    model, written = scores.model, scores.written
    if scores.sites[0].layer > 0:
        return (FIRST, *scores.writers[1:]), written
    stack = scores.sites[0].stack
    entering = layouts(model).vocabulary.entering.get(stack)
    if entering is None or isinstance(entering, str):
        return scores.writers, written
    if any(step.kind == "norm" for step in entering.steps):
        return scores.writers, written  # a norm of the sum: tokens and positions have one part
    table = precise(embeddings(model).W_E(stack))
    token = table[scores.inputs["input_ids"]]
    rest = written[:, :, 0] - token
    if float(rest.abs().max()) <= _SMALL * float(written[:, :, 0].abs().max()):
        return scores.writers, written
    apart = float((rest - rest[:1]).abs().max())
    if apart > _SMALL * float(rest.abs().max()):
        return scores.writers, written  # it depends on more than the position
    x = torch.cat([token[:, :, None], rest[:, :, None], written[:, :, 1:]], 2)
    return (EMBED, POSITION, *scores.writers[1:]), x
