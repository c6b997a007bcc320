"""`Transformer`: a module with known attention sites that can be run, visited and edited."""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.core.errors import NonFiniteError, OptionError, PromptError
from interp.core.head import Head
from interp.core.interrupts import held
from interp.core.prompts import Prompts
from interp.model.calls.call import Call
from interp.model.calls.sites import POOLING, Site
from interp.model.content import checksum, content_hash
from interp.model.edits import Edit
from interp.model.head_arguments import require_heads
from interp.model.hooks.behind_gate import Stage, Visit
from interp.model.hooks.tap import visiting
from interp.model.inputs import (
    context_length,
    forward,
    is_encoder_decoder,
    position_limit,
    require_tensor_inputs,
    takes,
    text_config,
    vocabulary,
)
from interp.model.locate.ranks import Ranks
from interp.model.padding import Padding
from interp.model.processing import processed
from interp_kernels.vector_math import settle

settle()

Inputs = Mapping[str, Any]

# Taps, and the names of active edits, apply only to the thread that opened them.
_edits: ContextVar[tuple[tuple[Transformer, tuple[Edit, ...]], ...]] = ContextVar(
    "interp_edits", default=()
)


class _Implementation(str):
    """Name of an attention implementation, which says where the patterns are if it is called."""

    __slots__ = ()

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise OptionError(
            f"model.attention is the name of the implementation, {str(self)!r}; the patterns of a "
            'text are model.capture("a text")["pattern", layer], or interp.view(model, "a text")'
        )


@dataclass(eq=False)
class Transformer:
    """Transformer with known attention sites that can be run, visited and edited.

    The wrapped module is never changed: taps are open only during a run. `Model` adds capture,
    generation and weights.
    """

    module: nn.Module
    name: str
    sites: tuple[Site, ...]
    tokenizer: Any = None
    revision: str | None = None
    unread: tuple[str, ...] = ()  # attention layers that are not softmax attention
    unused: tuple[str, ...] = ()  # checkpoint tensors that belong to a head of another task
    source: str = "transformers"  # the package that held the model, and how it is read
    # for a model spread over processes: sites count the heads in this process
    ranks: Ranks | None = None
    left_out: tuple[Site, ...] = ()  # of a view; see `interp.model.views`
    joint_sites: tuple[Site, ...] = ()  # of a run on pictures inside text; see `joint_view`
    processor: Any = None  # of pictures and sound; that beside the weights unless one is given
    chat: bool = False  # texts are a user's turn in the tokenizer's chat template
    reading_text: Callable[[], None] | None = None  # called before a text is read as a prompt
    unread_why: str = ""  # why the towers of a model that reads pictures inside text are not read
    _hashed: tuple[str, str] = field(default=("", ""), init=False, repr=False)

    @property
    def config(self) -> Any:
        """The Hugging Face config."""
        return self.module.config

    @property
    def device(self) -> torch.device:
        """Device of the first parameter."""
        return next(self.module.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the first floating-point parameter."""
        return next(p.dtype for p in self.module.parameters() if p.is_floating_point())

    @property
    def attention(self) -> str:
        """The attention implementation the model runs with, such as `sdpa`."""
        return _Implementation(getattr(self.config, "_attn_implementation", None) or "own code")

    @property
    def elsewhere(self) -> str | None:
        """Location of a model that runs in another process and returns only numbers per head."""
        return None

    @property
    def stacks(self) -> tuple[str, ...]:
        """Names of the attention stacks, such as `("encoder", "decoder", "cross")`."""
        return tuple(dict.fromkeys(site.stack for site in self.sites))

    @property
    def kind(self) -> str:
        """`causal`, `encoder`, `encoder-decoder`, `vision` or `audio`."""
        if is_encoder_decoder(self.module):
            return "encoder-decoder"
        if not self.takes_text:
            return "audio" if {"input_values", "input_features"} & takes(self.module) else "vision"
        sites = [s for s in self.sites if not (self.joint_sites and s.of_tower)]
        return "causal" if all(site.causal or site.prefix for site in sites) else "encoder"

    @property
    def n_layers(self) -> int:
        """Layers of the largest stack, counted by the highest layer index; pooling is none."""
        layers = [site.layer for site in self.sites if site.stack != POOLING]
        return 1 + max(layers or [site.layer for site in self.sites])

    @property
    def n_heads(self) -> int:
        """Query heads per layer (of the widest layer)."""
        return max(site.n_heads for site in self.sites)

    @property
    def n_kv_heads(self) -> int:
        """Key-value heads per layer (of the widest layer)."""
        return max(site.n_kv_heads for site in self.sites)

    @property
    def d_head(self) -> int:
        """Width of queries and keys; read from the run, never `d_model / n_heads`."""
        return self.sites[0].d_head

    @cached_property
    def d_model(self) -> int:
        """Width of the residual stream; of a model in stages that of the last one."""
        config = text_config(self.config)
        names = ("hidden_size", "d_model", "n_embd", "dim", "hidden_sizes", "embed_dims")
        for width in (getattr(config, name, None) for name in names):
            if width:
                return int(width[-1] if isinstance(width, (list, tuple)) else width)
        site = self.sites[0]
        return site.n_heads * site.d_v

    @property
    def d_vocab(self) -> int:
        """Number of token ids."""
        return vocabulary(self.config)

    @property
    def context(self) -> int | None:
        """The context length the config states."""
        return context_length(self.module)

    @property
    def takes_text(self) -> bool:
        """True if token ids alone are a valid input."""
        return "input_ids" in takes(self.module) and not (
            "pixel_values" in takes(self.module) and self.d_vocab == 0
        )

    @property
    def whole_sites(self) -> tuple[Site, ...]:
        """Sites with the heads of all processes, where a model is spread over several."""
        return self.sites if self.ranks is None else tuple(map(self.ranks.whole_site, self.sites))

    def heads(self, stack: str | None = None) -> list[Head]:
        """Return every head, in order of layers."""
        sites = (site for site in self.sites if stack in (None, site.stack))
        return [Head(site.layer, h) for site in sites for h in range(site.n_heads)]

    def site(self, layer: int, stack: str | None = None) -> Site:
        """Return the attention site of one layer."""
        sites = [s for s in self.sites if s.layer == layer and stack in (None, s.stack)]
        if len(sites) == 1:
            return sites[0]
        if sites:
            raise OptionError(
                f"layer {layer} exists in {', '.join(s.stack for s in sites)}; name the stack"
            )
        known = ", ".join(s.name for s in self.sites)
        raise OptionError(
            f"{self.name} has no attention in {stack or ''} layer {layer}; it has {known}"
        )

    def __repr__(self) -> str:
        return (
            f"Model({self.name}: {self.kind}, {len(self.sites)} attention layers x {self.n_heads} "
            f"heads ({self.n_kv_heads} kv), d_head {self.d_head}, d_model {self.d_model}, "
            f"{self.dtype})"
        )

    def inputs(
        self, prompts: Prompts | Inputs | str | Sequence | None = None, **given: Any
    ) -> dict[str, Tensor]:
        """Return the module's inputs: ids and mask of prompts, or given tensors unchanged.

        Prompts of pictures or sound are given as `text=`, `images=`, `audio=` and `sampling_rate=`;
        see `interp.model.processing.processed`.
        """
        if prompts is None:
            return processed(self, **given)
        if given:
            raise PromptError("give the text of prompts with pictures or sound as text=")
        if isinstance(prompts, Mapping):
            require_tensor_inputs(prompts, self.name)
            items = prompts.items()
            return {k: v.to(self.device) if isinstance(v, Tensor) else v for k, v in items}
        if "input_ids" not in takes(self.module):
            raise PromptError(
                f"{self.name} ({self.kind}) reads no tokens; give its tensors by the names of its "
                "arguments, such as {'pixel_values': ...}"
            )
        prompts = Prompts.of(prompts, self)
        prompts.check(self)
        inputs = self.padding.inputs(prompts, self.device)
        if is_encoder_decoder(self.module):
            decoder = prompts.decoder
            read = inputs if decoder is None else self.padding.inputs(decoder, self.device)
            inputs["decoder_input_ids"] = read["input_ids"]
            if "attention_mask" in read:
                inputs["decoder_attention_mask"] = read["attention_mask"]
        elif prompts.decoder is not None:
            raise PromptError(
                f"{self.name} ({self.kind}) has no decoder beside an encoder, so it reads one "
                "sequence; give prompts without decoder inputs"
            )
        return inputs

    def batches(self, prompts: Prompts, size: int) -> Iterator[Prompts]:
        """Split into batches of at most `size` prompts, in order, padded only where exact."""
        return prompts.batches(size, padded=self.padding.changes(prompts) is None)

    def run(
        self, prompts: Prompts | Inputs | str | Sequence, edits: Sequence[Edit] = ()
    ) -> Float[Tensor, "batch pos d_vocab"]:
        """Logits (or the last hidden state of a model without a head) under the given edits."""
        inputs = self.inputs(prompts)
        if edits:
            with self.edited(*edits):
                return self._forward(inputs)
        return self._forward(inputs)

    def _forward(self, inputs: Inputs) -> Tensor:
        return forward(self.module, inputs, self.name)

    @contextmanager
    def edited(self, *edits: Edit) -> Iterator[Self]:
        """Edit every run of the module inside the block, by interp or by the caller.

        The module's own `generate` is edited at every step, with any cache and way of decoding.
        Nested blocks add up: the outer edits act first.
        """
        here = self.local_edits(edits)

        def visit(site: Site, call: Call, real: Tensor) -> None:
            for edit in here:
                edit(call, site, real)

        # other layers are not read: a recurrent one cannot be while it continues from a state
        among = {site.module for site in self.sites if any(e.applies(site) for e in here)}
        looking = visiting(self.module, self.sites, visit, among=among, stage="both")
        with self.remembered(edits), looking:
            yield self

    def local_edits(self, edits: Sequence[Edit]) -> Sequence[Edit]:
        """Return the part of edits that changes heads in this process."""
        for edit in edits:
            require_heads(self.whole_sites, edit.heads, edit.stack, self.name)
        return edits if self.ranks is None else self.ranks.local(edits, self.sites)

    @contextmanager
    def remembered(self, edits: Sequence[Edit]) -> Iterator[None]:
        """List edits as active inside the block, for provenance."""
        token = _edits.set((*_edits.get(), (self, tuple(edits))))
        try:
            yield
        finally:
            _edits.reset(token)

    @property
    def current_edits(self) -> tuple[Edit, ...]:
        """The active edits, outermost first."""
        return tuple(e for model, edits in _edits.get() if model is self for e in edits)

    @property
    def active_edits(self) -> tuple[str, ...]:
        """Names of the active edits, outermost first."""
        return tuple(edit.name for edit in self.current_edits)

    def visited(
        self,
        visit: Visit,
        *,
        fused: bool = False,
        streamed: bool = False,
        among: Container[str] | None = None,
        stage: Stage = "z",
    ) -> AbstractContextManager[None]:
        """Call `visit(site, call, real)` at every attention of every forward in the block.

        `real [batch, query_pos]` marks the query positions that are not padding. With `fused` the
        model's own kernel does not run: the visitor computes z and assigns it to the call. With
        `streamed`, calls of the model's own code hold no pattern where q, k and a bias give it.
        A visitor that replaces z by the output of another pattern has the `stage` "mix": its z
        lies before a gate, if there is one. With `among` only these attention modules are read.
        """
        return visiting(self.module, self.sites, visit, fused, streamed, among, stage)

    def read(
        self,
        prompts: Prompts | Inputs | str | Sequence,
        visit: Visit,
        *,
        last: int | None = None,
        fused: bool = False,
        streamed: bool = False,
        stage: Stage = "z",
        run: Callable[[dict[str, Any]], Any] | None = None,
    ) -> Any:
        """Run prompts once without gradients and pass every attention call to `visit`.

        What the visitor does not store is released before the next layer; `capture` stores by name.
        """
        inputs: dict[str, Any] = self.inputs(prompts)  # before the visit: it may test padding
        if last is not None and "logits_to_keep" in takes(self.module):
            inputs["logits_to_keep"] = last
        looking = self.visited(visit, fused=fused, streamed=streamed, stage=stage)
        with held(), torch.no_grad(), looking:
            return self._forward(inputs) if run is None else run(inputs)

    def require_finite(self, call: Call, site: Site) -> None:
        """Raise if a call's output is not finite."""
        # a finite sum has finite terms; another one may have overflowed
        if not bool(torch.isfinite(call.z.sum())) and not bool(torch.isfinite(call.z).all()):
            bad = (~torch.isfinite(call.z)).flatten(2).any(-1).any(0).nonzero().flatten().tolist()
            raise NonFiniteError(
                f"{self.name}: NaN or infinity in the attention output of {site.stack} layer "
                f"{site.layer} (module {site.module}, heads {bad}); "
                f"the activations overflow in {self.dtype} or the weights are damaged"
            )

    @property
    def content_hash(self) -> str:
        """sha256 of all saved parameters and buffers, recomputed only if their checksum changed."""
        seen = (
            checksum(self.module) if self.ranks is None else ""
        )  # all processes must return the same value
        if self._hashed[0] != seen or not self._hashed[1]:
            self._hashed = seen, content_hash(self.module)
        return self._hashed[1]

    @cached_property
    def limit(self) -> int | None:
        """Longest prompt of the position table; None where positions are computed."""
        return position_limit(self.module)

    @cached_property
    def padding(self) -> Padding:
        """Padding rules of the model for prompts of different lengths."""
        return Padding(self.module, self.config, self.name)

    def untrained(self) -> nn.Module:
        """Return the same architecture with new random weights, from torch's global generator."""
        fresh = getattr(self.module, "fresh", None)
        module = type(self.module)(copy.deepcopy(self.config)) if fresh is None else fresh()
        return module.to(device=self.device, dtype=self.dtype).eval()
