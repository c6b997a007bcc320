"""Parts of the last stream at one position: heads, MLPs, layers without heads, the embedding."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from interp.core.errors import UnreadableAttention
from interp.model.locate.head_outputs import of_no_head, writing_weights
from interp.model.locate.stream_layers import ENDS, StreamLayer, stream_layers

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.capture import ActivationCache
    from interp.model.model import Model

EMBEDDING = "embedding"


@dataclass(frozen=True, eq=False)
class StreamWriters:
    """Everything that writes to the stream that predicts.

    A layer without heads, such as a convolution, is one part, and so is a layer for which it is not
    known what the heads of one of its attentions add.
    """

    model: Model
    stack: str

    @cached_property
    def layers(self) -> dict[StreamLayer, list[Site]]:
        """All layers of the stack in order, each with the attentions whose heads are parts."""
        inside: dict[str, list[Site]] = defaultdict(list)
        for site in self.model.sites:
            if "resid_pre" in site.streams:
                inside[site.streams["resid_pre"].module].append(site)
        sites_of_layer: dict[StreamLayer, list[Site]] = {}
        reasons: list[str] = []
        for layer in stream_layers(self.model, self.stack):
            block = layer.streams.get("resid_pre")
            sites = inside[block.module] if block is not None else []
            why = [why for site in sites if (why := self._why_not(site))]
            reasons += why
            sites_of_layer[layer] = [] if why else sites
        if not any(sites_of_layer.values()) and reasons:
            raise UnreadableAttention(reasons[0])
        return sites_of_layer

    def _why_not(self, site: Site) -> str:
        """Return why it is not known what the heads of an attention add, or nothing."""
        try:
            layout = writing_weights(self.model, site).layout.o
        except UnreadableAttention as error:
            return str(error)
        return layout if isinstance(layout, str) else ""

    @property
    def sites(self) -> list[Site]:
        """Attentions whose heads are parts, in the order of the model."""
        read = [site for sites in self.layers.values() for site in sites]
        return [site for site in self.model.sites if site in read]

    def capture(
        self, prompts: Any, names: Sequence[str] = ("result", "attn_out")
    ) -> ActivationCache:
        """Capture the streams of all layers, and activations of the attentions that are read."""
        all_sites = self.model.sites
        by_stack: dict[str, list[Site]] = {self.stack: []}
        for site in self.sites:
            by_stack.setdefault(site.stack, []).append(site)
        runs: list[ActivationCache] = []
        for stack, sites in by_stack.items():
            beside = [n for n in ("mlp_out", "resid_mid") if any(n in s.streams for s in sites)]
            every = len(sites) == sum(s.stack == stack for s in all_sites)
            ends = ENDS if stack == self.stack else ()
            asked = [*ends, *names, *beside] if every else [*names, *beside]
            layers = None if every else [s.layer for s in sites]
            if ends and not every:
                runs.append(self.model.capture(prompts, ends, stack=stack))
            if sites:
                runs.append(self.model.capture(prompts, asked, stack=stack, layers=layers))
        values = {key: x for run in runs for key, x in run.values.items()}
        heads = {key: x for run in runs for key, x in run.heads.items()}
        return replace(runs[0], values=values, heads=heads)

    def along_heads(
        self, cache: ActivationCache, site: Site, row: int, direction: Float[Tensor, " d_model"]
    ) -> tuple[Float[Tensor, " head"], float]:
        """Return each head's contribution along a direction of the stream, and that of no head."""
        result, added = (
            cache[name, site.layer, site.stack][0, row] for name in ("result", "attn_out")
        )
        rest = of_no_head(writing_weights(self.model, site), result, added)
        return result.double() @ direction, float(rest.double() @ direction)

    def beside_heads(
        self, cache: ActivationCache, row: int, direction: Float[Tensor, " d_model"]
    ) -> dict[str, float]:
        """Return the contribution of every part that is no head, by its name."""
        return {name: float(x @ direction) for name, x in self._beside_heads(cache, row)}

    def mlps(self, parts: Mapping[str, float]) -> dict[int, float]:
        """Return the parts that are MLPs beside attention, by layer."""
        named = {f"MLP {x.layer}": x.layer for x in self.layers}
        return {named[name]: value for name, value in parts.items() if name in named}

    def _beside_heads(self, cache: ActivationCache, row: int) -> Iterator[tuple[str, Tensor]]:
        def at(name: str, place: Site | StreamLayer) -> Tensor:
            return cache[name, place.layer, place.stack][0, row].double()

        for layer, sites in self.layers.items():
            named = f"MLP {layer.layer}"
            written = [site for site in sites if "mlp_out" in site.streams]
            mid = sites[-1].streams.get("resid_mid") if sites else None
            if not sites:
                yield layer.name, at("resid_post", layer) - at("resid_pre", layer)
            elif written:
                yield named, at("mlp_out", written[-1])
            elif mid is None:
                before = at("resid_pre", layer) + sum(at("attn_out", site) for site in sites)
                yield named, at("resid_post", layer) - before
            elif mid != layer.streams["resid_post"]:  # where they are one, there is no MLP
                yield named, at("resid_post", layer) - at("resid_mid", sites[-1])
        yield EMBEDDING, at("resid_pre", next(iter(self.layers)))
