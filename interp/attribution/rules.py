"""Modified backward passes for gradient methods: rules replace derivatives, the forward is exact.

The following steps of a transformer are nonlinear, and a rule can replace the derivative of each:

    softmax      "exact"; "freeze": no gradient into the pattern, so none into queries and keys
                 (nor into the router of a mixture of experts);
                 with `temperature` T the backward pass is that of softmax(s/T), while the forward
                 pass is unchanged
    norm         "exact"; "freeze": the divisor of the vector is treated as a constant
    activation   "gradient"; "identity": f(x)/x in place of f'(x)
    product      `split`: each factor of a product gets half of the gradient: queries and keys a
                 quarter, values a half; both sides of a gated MLP a half. With "gates" only the
                 last, and attention is differentiated
    rescale      for softmax, norm and activation: differences between the two inputs of a batch in
                 place of derivatives (`interp.attribution.rescale`); products too
    gate         "stop": no gradient into the factor of a product that is the output of an
                 activation, so that the other side of a gated MLP gets all of it; "share" leaves
                 products to `split`

All numbers of the forward pass remain those of the model, and the model is unchanged on leaving.
A step that no rule covers raises an error that names its module; no step is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from interp.attribution.rescale import (
    as_is,
    product,
    rescaled,
    rescaled_attention,
    rescaled_cosine,
    rescaled_norm,
)
from interp.attribution.roles import Roles, close
from interp.attribution.tracing import check_graph, is_gate, label_step, mark_gate, trust
from interp.core.errors import OptionError, UnreadableAttention
from interp.core.interrupts import holding
from interp.model.calls.call import Call, RecordedCall, precise
from interp.model.calls.sites import Site
from interp.model.hooks.inference import in_this_thread
from interp.model.hooks.softmax_watch import inside_interface

if TYPE_CHECKING:
    from interp.model.model import Model

_PRODUCT = {
    torch.mul,
    torch.multiply,
    Tensor.mul,
    Tensor.multiply,
    Tensor.__mul__,
    Tensor.__rmul__,
    Tensor.__imul__,
}
_SOFTMAX = {torch.softmax, F.softmax, Tensor.softmax}
_KEEP_ZERO = {F.gelu, F.silu, F.relu, torch.relu, Tensor.relu, torch.tanh, Tensor.tanh, F.tanh}
_GATES = {torch.sigmoid, Tensor.sigmoid, F.sigmoid} | _KEEP_ZERO


@dataclass(frozen=True)
class Rules:
    """Rule for each nonlinearity; the default is the plain gradient."""

    softmax: Literal["exact", "freeze", "rescale"] = "exact"
    temperature: float = 1.0
    norm: Literal["exact", "freeze", "rescale"] = "exact"
    activation: Literal["gradient", "identity", "rescale"] = "gradient"
    split: Literal[True, False, "gates"] = False
    gate: Literal["share", "stop"] = "share"

    def __post_init__(self) -> None:
        for name, known in (
            ("softmax", ("exact", "freeze", "rescale")),
            ("norm", ("exact", "freeze", "rescale")),
            ("activation", ("gradient", "identity", "rescale")),
            ("gate", ("share", "stop")),
            ("split", (True, False, "gates")),
        ):
            if getattr(self, name) not in known:
                names = ", ".join(map(str, known))
                raise OptionError(f"unknown {name} rule {getattr(self, name)!r}; known: {names}")
        if not self.temperature > 0:
            raise OptionError(f"temperature={self.temperature} is out of range; it must be above 0")


@dataclass(eq=False)
class Ruled:
    """State of a run under rules, with the error of its recomputed attention.

    Args:
        rules: the rules.
        error: largest absolute difference of recomputed attention to that of the model.
        trusted: autograd steps that a rule covers.
        path: names of the modules that are running, innermost last.
        opaque: depth inside modules that a rule covers as a whole.
    """

    rules: Rules
    error: float = 0.0
    trusted: set[Any] = field(default_factory=set)
    path: list[str] = field(default_factory=list)
    opaque: int = 0

    def check(self, output: Tensor) -> None:
        """Raise an error if no rule covers a step between the embeddings and the output."""
        check_graph(
            output,
            self.trusted,
            freeze_norms=self.rules.norm != "exact",
            identity_activations=self.rules.activation != "gradient",
        )


@contextmanager
def ruled(model: Model, rules: Rules, roles: Roles) -> Iterator[Ruled]:
    """Apply the rules to gradients of this thread's runs of the model, inside a `with` block."""
    run = Ruled(rules)
    _require_softmax(model)
    with ExitStack() as stack:
        # entered before the attention visitors, so that the rules also apply inside them
        stack.enter_context(_Watch(run))
        stack.enter_context(_hooks(model.module, run, roles))
        if rules.softmax != "exact" or rules.temperature != 1 or rules.split:
            stack.enter_context(model.visited(_visitor(run), stage="mix"))
        yield run


def _require_softmax(model: Model) -> None:
    for site in model.sites:
        if site.kind != "softmax":
            raise UnreadableAttention(
                f"{model.name}: module {site.module} has no rule: its {site.kind} map is not one "
                "softmax"
            )


# --- derivatives --------------------------------------------------------------------------------


class _Scaled(torch.autograd.Function):
    """Identity whose gradient is multiplied by a factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0] * ctx.factor, None


class _Ratio(torch.autograd.Function):
    """Function y = f(x) with the derivative replaced by f(x)/x, and by 0 where x is 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        wide = precise(x)
        ctx.save_for_backward(torch.where(wide != 0, precise(y) / wide, torch.zeros_like(wide)))
        return y.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (ratio,) = ctx.saved_tensors
        return (grads[0] * ratio).to(grads[0].dtype), None


class _Softmax(torch.autograd.Function):
    """Function softmax(s) with the derivative p*(g - <p, g>) of p = softmax(s/T)."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, temperature: float) -> Tensor:
        ctx.save_for_backward((scores / temperature).softmax(-1))
        return scores.softmax(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (p,) = ctx.saved_tensors
        (g,) = grads
        return p * (g - (p * g).sum(-1, keepdim=True)), None


# --- attention ----------------------------------------------------------------------------------


def _visitor(run: Ruled):
    rules = run.rules

    def visit(site: Site, call: Call, real: Tensor) -> None:
        ends = [call.v]
        pattern: Tensor | None = None
        if rules.softmax == "rescale":
            ends += [x for x in (call.q, call.k) if x is not None]
            z = rescaled_attention(site, call)
        elif rules.softmax == "freeze":
            with torch.no_grad():
                pattern = call.pattern()
        else:
            scores = call.scores()
            ends += [x for x in (call.q, call.k) if x is not None]
            pattern = _pattern(
                call, _Scaled.apply(scores, 0.25) if rules.split is True else scores, rules
            )
        if pattern is not None:
            half = rules.split is True and rules.softmax != "freeze"
            z = mixed(call, pattern, _Scaled.apply(call.v, 0.5) if half else call.v)
        error = close(
            z, call.z, f"{site.name}: recomputed attention does not equal that of the model"
        )
        run.error = max(run.error, error)
        trust(z, ends, run.trusted)
        call.z = as_is(call.z, z)

    return visit


def _pattern(call: Call, scores: Tensor, rules: Rules) -> Tensor:
    sinks = getattr(call, "sinks", None)
    if sinks is None:
        pattern = _Softmax.apply(scores, rules.temperature)
    else:
        sink = precise(sinks).reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        pattern = _Softmax.apply(torch.cat([scores, sink], -1), rules.temperature)[..., :-1]
    if isinstance(call, RecordedCall):
        return as_is(call.pattern(), pattern)
    return pattern


def mixed(
    call: Call, pattern: Float[Tensor, "batch head query_pos key_pos"], v: Tensor
) -> Float[Tensor, "batch head query_pos d_v"]:
    """Compute the head outputs that a pattern and values give."""
    values = call.v
    call.v = v
    try:
        return call.mix(pattern)
    finally:
        call.v = values


# --- norms, activations, products ---------------------------------------------------------------


@holding
@contextmanager
def _hooks(module: nn.Module, run: Ruled, roles: Roles) -> Iterator[None]:
    names = {m: name or type(m).__name__ for name, m in module.named_modules()}
    whole = set(roles.norms) | set(roles.activations)

    def enter(inner: nn.Module, args: tuple) -> None:
        run.path.append(names[inner])
        run.opaque += inner in whole

    def leave(inner: nn.Module, args: tuple, output: Any) -> Any:
        run.opaque -= inner in whole
        run.path.pop()
        if inner not in whole or not isinstance(output, Tensor) or not torch.is_grad_enabled():
            return None
        (x,) = args  # modules with a role have a single argument, see `find_roles`
        if not x.requires_grad:
            return None
        label_step(output, names[inner])
        if inner in roles.norms and run.rules.norm == "freeze":
            return as_is(output, roles.norms[inner].frozen(x, output)[0])
        if inner in roles.norms and run.rules.norm == "rescale":
            return as_is(output, rescaled_norm(roles.norms[inner], x, output))
        role = roles.activations.get(inner)
        if role is None:
            return None
        replaced = None
        if run.rules.activation == "identity" and role.keeps_zero:
            replaced = _Ratio.apply(x, output.detach())
        elif run.rules.activation == "rescale":
            replaced = rescaled(x, output)
        mark_gate(output if replaced is None else replaced)
        return replaced

    begin, end = in_this_thread(enter), in_this_thread(leave)
    handles = []
    try:
        for m in module.modules():
            handles.append(m.register_forward_pre_hook(begin))
            handles.append(m.register_forward_hook(end, always_call=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Watch(TorchFunctionMode):
    """Rules for steps written as function calls: products, activations, and the cosine."""

    def __init__(self, run: Ruled):
        super().__init__()
        self.run = run

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if inside_interface.get() or self.run.opaque or not torch.is_grad_enabled():
            return func(*args, **kwargs)
        rules = self.run.rules
        if func in _PRODUCT and rules.gate == "stop" and _both_carry(args):
            out = torch.mul(*self._one_side(*args[:2]))
        elif func in _PRODUCT and rules.activation == "rescale" and _both_carry(args):
            out = product(torch.mul, *args[:2])
        elif func in _PRODUCT and rules.split and _both_carry(args):
            out = torch.mul(*(_Scaled.apply(x, 0.5) for x in args[:2]))
        elif func in _KEEP_ZERO and rules.activation == "identity" and _carries(args[0]):
            with torch.no_grad():
                output = func(*args, **{k: v for k, v in kwargs.items() if k != "inplace"})
            out = _Ratio.apply(args[0], output)
        elif func in _GATES and rules.activation == "rescale" and _carries(args[0]):
            options = {k: v for k, v in kwargs.items() if k != "inplace"}
            out = rescaled(args[0], func(*args, **options))
        elif func in _SOFTMAX and rules.softmax == "freeze":
            out = func(
                *args, **kwargs
            ).detach()  # the router of a mixture of experts; attention has its own visitor
        elif func is torch.cosine_similarity and rules.norm == "freeze":
            out = _cosine(*args, **kwargs)
        elif func is torch.cosine_similarity and rules.norm == "rescale":
            out = rescaled_cosine(*args, **kwargs)
        else:
            out = func(*args, **kwargs)
        if self.run.path:
            label_step(out, self.run.path[-1])
        if func in _GATES and _carries(out):
            mark_gate(out)
        return out

    def _one_side(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factors of a product, with the gate detached from its gradient."""
        gates = is_gate(a), is_gate(b)
        if sum(gates) != 1:
            where = self.run.path[-1] if self.run.path else "the model"
            which = "both factors are outputs" if all(gates) else "neither factor is an output"
            raise UnreadableAttention(
                f"module {where}: {which} of an activation in a product of two, so the gate is not "
                "known; use gate=half"
            )
        return (a.detach(), b) if gates[0] else (a, b.detach())


def _carries(x: object) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


def _both_carry(args: tuple) -> bool:
    return len(args) > 1 and _carries(args[0]) and _carries(args[1])


def _cosine(a: Tensor, b: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Compute the cosine with both lengths treated as constants, like the scales of norms."""
    length = (a.norm(dim=dim) * b.norm(dim=dim)).clamp_min(eps).detach()
    return (a * b).sum(dim) / length
