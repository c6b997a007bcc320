"""Derivatives of the target with respect to the token embeddings and the attention patterns.

Embeddings are the outputs of the model's embedding module (the rows of its table, times the factor
of some families), before positions, token types and any norm. The contributions of positions and
biases to the target therefore belong to no token and appear in the residual.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.attribution.declaration import Scores
from interp.attribution.graph.mixing import require_storable
from interp.attribution.roles import close, find_roles
from interp.attribution.rules import Rules, as_is, mixed, ruled
from interp.causal.gate_derivatives import frozen
from interp.core.errors import NonFiniteError, UnreadableAttention
from interp.core.interrupts import holding
from interp.model.calls.call import Call, ComputedCall, repeat_kv
from interp.model.calls.sites import Site
from interp.model.hooks.inference import in_this_thread, inference

if TYPE_CHECKING:
    from interp.attribution.example import Example
    from interp.model.model import Model

Embedded = Float[Tensor, "batch source d_embed"]


@dataclass(frozen=True, eq=False)
class Gradient:
    """Values of the target on a batch of embeddings, and the derivatives by the embeddings.

    Args:
        embeddings: embeddings of the sources.
        gradients: derivatives of the target by these embeddings.
        values: value of the target for each input of the batch.
        elsewhere: gradient x input, summed over embeddings that are not of sources (those of a
            decoder's tokens).
        error: largest absolute difference of recomputed attention to that of the model.
    """

    embeddings: Embedded
    gradients: Embedded
    values: Float[Tensor, " batch"]
    elsewhere: Float[Tensor, " batch"]
    error: float

    @property
    def inner(self) -> Float[Tensor, "batch source"]:
        """Gradient x input, summed over the entries of each embedding."""
        return (self.gradients.double() * self.embeddings.double()).sum(-1)


def gradient(
    example: Example, rules: Rules | None = None, *, at: Embedded | None = None
) -> Gradient:
    """Run one backward pass from the target to the embeddings of the sources."""
    model, error = example.model, 0.0
    inputs = example.inputs
    if at is not None and len(at) > 1:
        inputs = {k: v.expand(len(at), *v.shape[1:]) for k, v in inputs.items()}
    roles = None if rules is None else find_roles(model, inputs)
    with torch.enable_grad(), frozen(model.module), inference(model.module), ExitStack() as stack:
        leaves = stack.enter_context(embedding_leaves(model, at))
        run = None if rules is None else stack.enter_context(ruled(model, rules, roles))  # type: ignore[arg-type]
        output = model.run(inputs if rules is not None else inputs | example.short)
        if run is not None:
            run.check(output)
            error = run.error
            assert roles is not None
            close(
                output,
                roles.output,
                f"{model.name}: the output of the run under rules does not equal that of the model",
            )
        values = example.read(output)
    source, others = leaves.tensors(len(values), len(example))
    gradients = grads(model, values, [source, *others])
    elsewhere = torch.zeros(len(values), dtype=torch.double)
    for x, g in zip(others, gradients[1:], strict=True):
        elsewhere += (x.double() * g.double()).sum((1, 2)).detach().cpu()
    return Gradient(source.detach(), gradients[0], values.detach(), elsewhere, error)


NOT_LINEAR = "a target that is not linear in the model's output; explain a logit instead"
"""Cause of a residual of rules that split the model's output exactly."""


def gradients_under_rules(example: Example, rules: Rules | None, residual_cause: str) -> Scores:
    """Compute gradient x input under rules; the total is the target's value.

    For an encoder-decoder the share of the decoder's tokens is subtracted from the total.
    """
    g = gradient(example, rules)
    notes: dict[str, Any] = {}
    if rules is not None:
        notes["attention_error"] = g.error
    total = float(g.values[0])
    if example.model.kind == "encoder-decoder":
        notes["decoder_share"] = float(g.elsewhere[0])
        total -= notes["decoder_share"]
    cause = residual_cause if reads_linearly(example) else NOT_LINEAR
    return Scores(g.inner[0].cpu().numpy(), total=total, residual_cause=cause, notes=notes)


def reads_linearly(example: Example) -> bool:
    """Return True if the target is linear in the output; a cosine is, for fixed lengths."""
    if example.target.unit == "cosine":
        return True
    once, twice = example.read(example.output), example.read(2 * example.output)
    return bool(torch.allclose(twice.double(), 2 * once.double(), rtol=1e-3, atol=1e-5))


def pattern_gradients(
    example: Example,
) -> dict[Site, tuple[Float[Tensor, "head query_pos key_pos"], Tensor]]:
    """Return every attention pattern and the target's derivative by it, in order of the run."""
    for stack in example.model.stacks:
        require_storable(example, stack)
    model, patterns = example.model, {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        pattern = call.pattern()
        z = mixed(call, pattern, call.v)
        close(z, call.z, f"{site.name}: recomputed attention does not equal that of the model")
        patterns[site] = pattern
        call.z = as_is(call.z, z)

    with torch.enable_grad(), frozen(model.module), inference(model.module):
        with embedding_leaves(model, None), model.visited(visit, stage="mix"):
            output = model.run(example.inputs | example.short)
        values = example.read(output)
    gradients = grads(model, values, list(patterns.values()))
    return {
        site: (p[0].detach().double().cpu(), g[0].double().cpu())
        for (site, p), g in zip(patterns.items(), gradients, strict=True)
    }


def grads(model: Model, values: Tensor, wanted: list[Tensor]) -> list[Tensor]:
    """Differentiate the sum of values; 0 where they do not depend on a tensor."""
    if not values.requires_grad:
        raise UnreadableAttention(
            f"{model.name}: no gradient of the target reaches the token embeddings; use a method "
            "without gradients, such as occlusion"
        )
    gradients = torch.autograd.grad(values.sum(), wanted, allow_unused=True)
    filled = [
        torch.zeros_like(x) if g is None else g for x, g in zip(wanted, gradients, strict=True)
    ]
    for g in filled:
        if not bool(torch.isfinite(g).all()):
            raise NonFiniteError(
                f"{model.name}: the gradient of the target contains NaN or infinity; try float32"
            )
    return filled


# --- embeddings ---------------------------------------------------------------------------------


@dataclass
class Leaves:
    """Embeddings in the order in which the run computed them, those of the sources first."""

    model: Model
    found: list[Tensor] = field(default_factory=list)

    def tensors(self, batch: int, sources: int) -> tuple[Tensor, list[Tensor]]:
        """Return the embeddings of the sources, and the others."""
        if not self.found:
            raise UnreadableAttention(
                f"{self.model.name}: its embedding module did not run, so no gradient reaches "
                "the tokens"
            )
        first = self.found[0]
        if first.shape[:-1] != (batch, sources):
            raise UnreadableAttention(
                f"{self.model.name} embeds its tokens with shape {tuple(first.shape)}, not "
                f"({batch}, {sources}, width), so a vector does not belong to one token"
            )
        return first, self.found[1:]


@holding
@contextmanager
def embedding_leaves(model: Model, at: Embedded | None) -> Iterator[Leaves]:
    """Make the outputs of embedding modules the leaves of gradients, in this thread's runs."""
    leaves = Leaves(model)

    def leave(module: nn.Module, args: tuple, output: Tensor) -> Tensor | None:
        if not isinstance(output, Tensor):
            return None
        x = output if at is None or leaves.found else at.to(output)
        leaf = x.detach().clone().requires_grad_(True)
        leaves.found.append(leaf)
        return leaf.clone()  # some families modify their embeddings in place

    handles = [m.register_forward_hook(in_this_thread(leave)) for m in embedding_modules(model)]
    try:
        yield leaves
    finally:
        for handle in handles:
            handle.remove()


def embedding_modules(model: Model) -> list[nn.Module]:
    """Return the module that embeds the sources, then the others that embed tokens."""
    module: Any = model.module
    owners = [module]
    if model.kind == "encoder-decoder" and hasattr(module, "get_encoder"):
        owners = [module.get_encoder(), module.get_decoder()]
    try:
        embeddings = [owner.get_input_embeddings() for owner in owners]
    except (AttributeError, NotImplementedError) as error:
        raise UnreadableAttention(
            f"{model.name} does not name the module that embeds its tokens ({error}); "
            "use a method without gradients"
        ) from error
    return list(dict.fromkeys(embeddings))


def embedded(model: Model, ids: Tensor) -> Tensor:
    """Embed token ids by the embedding module of the sources."""
    if not model.takes_text:
        raise UnreadableAttention(
            f"{model.name} embeds no token ids, from which this method starts; choose one that "
            "reads attention, such as rollout or alti"
        )
    with torch.no_grad():
        return embedding_modules(model)[0](ids)


ENTRIES = 2**21  # weights of all heads at a time: 16 MiB in double precision


@dataclass(frozen=True, eq=False)
class WeightedPattern:
    """Pattern of one layer times the target's derivative by it, never stored as a whole.

    Args:
        call: the attention call.
        gradient: the target's derivative by the head outputs (z).
    """

    call: ComputedCall
    gradient: Float[Tensor, "head query_pos d_v"]

    def blocks(self) -> Iterator[tuple[slice, Float[Tensor, "head row key_pos"]]]:
        """Yield the queries of every block and its weights times their derivatives.

        The derivative by the weight of query i and key j is the inner product of the derivative by
        the output of i and the value of j.
        """
        heads, queries, _ = self.gradient.shape
        value = repeat_kv(self.call.v, heads)[0].double()
        size = max(1, ENTRIES // (heads * value.shape[1]))
        for first in range(0, queries, size):
            rows = slice(first, min(first + size, queries))
            derivative = self.gradient[:, rows].double() @ value.transpose(1, 2)
            yield rows, self.call.pattern(rows)[0].double() * derivative


def weighted_patterns(example: Example) -> dict[Site, WeightedPattern]:
    """Return the weighted pattern of every layer, in order of the run; see `pattern_gradients`."""
    model, calls, z = example.model, {}, {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        assert isinstance(call, ComputedCall), "is_streamed excludes a family's own code"
        z[site] = call.z = call.z.clone()
        every = {f.name: getattr(call, f.name) for f in fields(call)}
        detached = {name: x.detach() for name, x in every.items() if isinstance(x, Tensor)}
        calls[site] = replace(call, **detached)

    with torch.enable_grad(), frozen(model.module), inference(model.module):
        with embedding_leaves(model, None), model.visited(visit, stage="mix"):
            output = model.run(example.inputs | example.short)
        values = example.read(output)
    gradients = grads(model, values, list(z.values()))
    return {
        site: WeightedPattern(call, g[0].detach())
        for (site, call), g in zip(calls.items(), gradients, strict=True)
    }
