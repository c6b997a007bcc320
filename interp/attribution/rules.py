"""One engine for the gradient rules: the forward stays, the backward follows rules.

These of a transformer's steps are not linear, and each has a rule that stands for its derivative:

    softmax      "exact"; "freeze": no gradient into the pattern, so none into queries and keys
                 (nor into the router of a mixture of experts);
                 with `temperature` T the backward is that of softmax(s/T), the forward is not
    norm         "exact"; "freeze": what the vector is divided by counts as a constant
    activation   "gradient"; "identity": f(x)/x in place of f'(x)
    product      `split`: each factor of a product gets half: q and k a quarter, v a half; both
                 sides of a gated MLP a half
    gate         "stop": no gradient into the factor of a product that comes out of an activation,
                 so that the other side of a gated MLP gets the whole; "share" leaves products to
                 `split`

Every number of the forward pass stays the model's own, and everything is as before on leaving.
What none of the rules stands for is refused by the name of its module, never passed over.
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

from interp.attribution.roles import Roles, close
from interp.attribution.tracing import check_graph, is_gate, label_step, mark_gate, trust
from interp.core.errors import OptionError, UnreadableAttention
from interp.model.hooks.calls import Call, RecordedCall, precise
from interp.model.hooks.inference import in_this_thread
from interp.model.hooks.softmax_watch import inside_interface
from interp.model.locate.sites import Site

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
    """Which rule stands for each nonlinearity; the default is the plain gradient."""

    softmax: Literal["exact", "freeze"] = "exact"
    temperature: float = 1.0
    norm: Literal["exact", "freeze"] = "exact"
    activation: Literal["gradient", "identity"] = "gradient"
    split: bool = False
    gate: Literal["share", "stop"] = "share"

    def __post_init__(self) -> None:
        for name, known in (
            ("softmax", ("exact", "freeze")),
            ("norm", ("exact", "freeze")),
            ("activation", ("gradient", "identity")),
            ("gate", ("share", "stop")),
        ):
            if getattr(self, name) not in known:
                raise OptionError(f"{name} rule {getattr(self, name)!r}; known: {', '.join(known)}")
        if not self.temperature > 0:
            raise OptionError(f"temperature={self.temperature}; it must be above 0")


@dataclass(eq=False)
class Ruled:
    """A run under rules: how far the attention computed for it lay from the model's own."""

    rules: Rules
    error: float = 0.0
    trusted: set[Any] = field(default_factory=set)
    path: list[str] = field(default_factory=list)  # modules that are running, innermost last
    opaque: int = 0  # depth inside modules that a rule stands for as a whole

    def check(self, output: Tensor) -> None:
        """Refuse what no rule stands for.

        Raises:
            UnreadableAttention: naming the module.
        """
        check_graph(
            output,
            self.trusted,
            freeze_norms=self.rules.norm == "freeze",
            identity_activations=self.rules.activation == "identity",
        )


@contextmanager
def ruled(model: Model, rules: Rules, roles: Roles) -> Iterator[Ruled]:
    """Inside the block, gradients through this thread's runs of the model follow the rules.

    Raises:
        UnreadableAttention: an activation or a norm has no rule, or an attention is not computed
            again; names the module.
    """
    run = Ruled(rules)
    with ExitStack() as stack:
        # under the watch of attention code, so that the rules hold in its visitors too
        stack.enter_context(_Watch(run))
        stack.enter_context(_hooks(model.module, run, roles))
        if rules.softmax == "freeze" or rules.temperature != 1 or rules.split:
            stack.enter_context(model.visited(_visitor(run)))
        yield run


# --- derivatives --------------------------------------------------------------------------------


class _Scaled(torch.autograd.Function):
    """x itself, with its gradient times a factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0] * ctx.factor, None


class _Ratio(torch.autograd.Function):
    """y = f(x), with f(x)/x for its derivative; 0 where x is 0, as nothing goes through there."""

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
    """softmax(s), with the derivative p*(g - <p, g>) of p = softmax(s/T)."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, temperature: float) -> Tensor:
        ctx.save_for_backward((scores / temperature).softmax(-1))
        return scores.softmax(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (p,) = ctx.saved_tensors
        (g,) = grads
        return p * (g - (p * g).sum(-1, keepdim=True)), None


def as_is(value: Tensor, gradient: Tensor) -> Tensor:
    """The number of one tensor with the gradient of another."""
    return value.detach() + (gradient - gradient.detach()).to(value.dtype)


# --- attention ----------------------------------------------------------------------------------


def _visitor(run: Ruled):
    rules = run.rules

    def visit(site: Site, call: Call, real: Tensor) -> None:
        ends = [call.v]
        if rules.softmax == "freeze":
            with torch.no_grad():
                pattern = call.pattern()
        else:
            scores = call.scores()
            ends += [x for x in (call.q, call.k) if x is not None]
            pattern = _pattern(call, _Scaled.apply(scores, 0.25) if rules.split else scores, rules)
        half = rules.split and rules.softmax != "freeze"
        z = mixed(call, pattern, _Scaled.apply(call.v, 0.5) if half else call.v)
        error = close(z, call.z, f"{site.name}: attention computed again is not the model's own")
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
    """The z that a pattern and values give."""
    own = call.v
    call.v = v
    try:
        return call.mix(pattern)
    finally:
        call.v = own


# --- norms, activations, products ---------------------------------------------------------------


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
        (x,) = args  # so it was when its role was found
        if not x.requires_grad:
            return None
        label_step(output, names[inner])
        if inner in roles.norms and run.rules.norm == "freeze":
            return as_is(output, roles.norms[inner].frozen(x, output)[0])
        role = roles.activations.get(inner)
        if role is None:
            return None
        given = None
        if run.rules.activation == "identity" and role.keeps_zero:
            given = _Ratio.apply(x, output.detach())
        mark_gate(output if given is None else given)
        return given

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
    """Rules for what is written as a function call: products, activations, and the cosine."""

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
        elif func in _PRODUCT and rules.split and _both_carry(args):
            out = torch.mul(*(_Scaled.apply(x, 0.5) for x in args[:2]))
        elif func in _KEEP_ZERO and rules.activation == "identity" and _carries(args[0]):
            with torch.no_grad():
                given = func(*args, **{k: v for k, v in kwargs.items() if k != "inplace"})
            out = _Ratio.apply(args[0], given)
        elif func in _SOFTMAX and rules.softmax == "freeze":
            out = func(*args, **kwargs).detach()  # a router of experts; attention is visited
        elif func is torch.cosine_similarity and rules.norm == "freeze":
            out = _cosine(*args, **kwargs)
        else:
            out = func(*args, **kwargs)
        if self.run.path:
            label_step(out, self.run.path[-1])
        if func in _GATES and _carries(out):
            mark_gate(out)
        return out

    def _one_side(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """The factors of a product, the gate without its gradient.

        Raises:
            UnreadableAttention: neither or both come out of an activation.
        """
        gates = is_gate(a), is_gate(b)
        if sum(gates) != 1:
            where = self.run.path[-1] if self.run.path else "the model"
            which = "both factors come" if all(gates) else "neither factor comes"
            raise UnreadableAttention(
                f"module {where}: {which} out of an activation in a product of two, so none is its "
                "gate; take gate=half"
            )
        return (a.detach(), b) if gates[0] else (a, b.detach())


def _carries(x: object) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


def _both_carry(args: tuple) -> bool:
    return len(args) > 1 and _carries(args[0]) and _carries(args[1])


def _cosine(a: Tensor, b: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Lengths are scales, so they are frozen as those of norms are."""
    length = (a.norm(dim=dim) * b.norm(dim=dim)).clamp_min(eps).detach()
    return (a * b).sum(dim) / length
