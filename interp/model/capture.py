"""Capture of chosen activations of chosen heads in one forward pass, by standard names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from interp.core.errors import NonFiniteError, OptionError, UnknownName, UnreadableAttention
from interp.core.interrupts import guarded
from interp.core.presenter import drawn
from interp.model.activation_names import NAMES, STREAM_NAMES
from interp.model.calls.call import Call
from interp.model.calls.sites import Site, Where
from interp.model.capture_request import CaptureRequest, has_activation, requested
from interp.model.edits import Edit
from interp.model.hooks.inference import in_this_thread
from interp.model.locate.find_sites import first_tensor
from interp.model.locate.head_outputs import head_outputs, read_for_run, writing_weights
from interp.model.locate.stream_layers import StreamLayer
from interp.model.locate.weights import HeadWeights

if TYPE_CHECKING:
    from interp.model.transformer import Transformer


_ADDED = "attn_out for result"


class NotCaptured(OptionError, KeyError):
    """Activation that a cache does not hold; also a `KeyError`, so that `in` and `get` work."""

    __str__ = Exception.__str__  # str() of a KeyError would add quotes around the sentence


@dataclass(frozen=True, eq=False)
class ActivationCache(Mapping):
    """Read-only activations of one pass: `cache["pattern", 3]`, or `cache["z", 3, "encoder"]`.

    The head axis holds `heads[stack, layer]`, in that order (all heads unless some were chosen).
    """

    logits: Tensor
    values: Mapping[tuple[str, str, int], Tensor] = field(repr=False)
    heads: Mapping[tuple[str, int], tuple[int, ...]]
    edits: tuple[str, ...] = ()

    def _key(self, key: Any) -> tuple[str, str, int]:
        if not isinstance(key, tuple) or len(key) not in (2, 3):
            raise OptionError(
                f"cache[{key!r}]: give a name and a layer, such as cache['pattern', 0]"
            )
        name, layer, *rest = key
        if name not in NAMES:
            raise UnknownName("activation", str(name), NAMES)
        stacks = dict.fromkeys(s for n, s, _ in self.values if n == name)
        fits = [
            (name, s, layer)
            for s in stacks
            if (not rest or rest[0] == s) and (name, s, layer) in self.values
        ]
        if len(fits) > 1:
            raise OptionError(
                f"layer {layer} was captured in {', '.join(s for _, s, _ in fits)}; add the stack"
            )
        if not fits:
            have = sorted({f"{n} of {s}.{x}" for n, s, x in self.values})
            where = f"{rest[0]} layer {layer}" if rest else f"layer {layer}"
            raise NotCaptured(
                f"{name} of {where} was not captured; these were captured: "
                f"{', '.join(have) or 'nothing'}"
            )
        return fits[0]

    def __getitem__(self, key: Any) -> Tensor:
        return self.values[self._key(key)]

    def __iter__(self) -> Iterator[tuple[str, int, str]]:
        return ((name, layer, stack) for name, stack, layer in self.values)

    def __len__(self) -> int:
        return len(self.values)

    def stack(self, name: str, stack: str | None = None) -> Tensor:
        """Stack one activation of all captured layers, `[layer, ...]`; shapes must be equal."""
        tensors = {
            (s, layer): x
            for (n, s, layer), x in self.values.items()
            if n == name and stack in (None, s)
        }
        if not tensors:
            raise UnknownName("captured activation", name, {n for n, _, _ in self.values})
        shapes = {tuple(x.shape) for x in tensors.values()}
        if len(shapes) > 1:
            raise OptionError(
                f"{name} has several shapes over the layers ({shapes}); take the layers one by one"
            )
        return torch.stack(list(tensors.values()))

    def by_site(self, name: str) -> dict[tuple[str, int], Tensor]:
        """Return one activation of all captured layers, keyed by stack and layer."""
        return {(s, layer): x for (n, s, layer), x in self.values.items() if n == name}

    def view(self, tokens: Sequence[str] | None = None, *, item: int = 0) -> Any:
        """Return a view of the captured patterns of one prompt, with `.save_html` and `.plot`.

        See `interp.heads.patterns.View`.
        """
        return drawn("view", self, tokens, item)

    def _repr_html_(self) -> str:
        return drawn("inline", self)

    def z_by_site(self) -> dict[tuple[str, int], Tensor]:
        """Return all captured z, in the form that `interp.model.edits.resample` takes."""
        return self.by_site("z")


def _inside(index: Any, size: int, what: str) -> Any:
    """Convert an index to one counted from the front."""
    if isinstance(index, slice):
        return index
    outside = index[(index < -size) | (index >= size)].tolist()
    if outside:
        raise OptionError(f"{what} {outside} of {size}: they are counted from 0 to {size - 1}")
    return torch.where(index < 0, index + size, index)


def _take(x: Tensor, axis: int, index: Any) -> Tensor:
    if isinstance(index, slice):
        return x[(slice(None),) * axis + (index,)]
    return x.index_select(axis, _inside(index, x.shape[axis], "positions").to(x.device))


class Recorder:
    """Collector of the tensors of one forward pass."""

    def __init__(self, model: Transformer, request: CaptureRequest, *, to: torch.device | None):
        self.model, self.request, self.to = model, request, to
        self.values: dict[tuple[str, str, int], Tensor] = {}
        self.shapes: dict[str, tuple[int, int]] = {}  # batch and positions of each attention layer

    def keep(self, name: str, site: Site | StreamLayer, x: Tensor) -> None:
        """Store one activation, on the requested device."""
        self.values[name, site.stack, site.layer] = x if self.to is None else x.to(self.to)

    def visit(self, site: Site, call: Call, real: Tensor) -> None:
        """Store the requested activations of one attention call."""
        if (site.stack, site.layer) not in self.request.heads:
            return
        self.model.require_finite(call, site)
        self.shapes[site.name] = call.z.shape[0], call.z.shape[2]
        heads = torch.tensor(self.request.heads[site.stack, site.layer], device=call.z.device)
        rows, positions = self.request.rows, self.request.positions
        kv = torch.unique(heads // (site.n_heads // site.n_kv_heads)) if len(heads) else heads
        for name in self.request.names:
            if not has_activation(name, site):
                continue
            if name in ("scores", "pattern", "map"):
                index = _inside(rows, call.z.shape[2], "rows")
                index = index if isinstance(index, slice) else index.to(call.z.device)
                full = getattr(call, name)(index)
                self.keep(name, site, _take(full, 1, heads))
            elif name in ("q", "k", "v", "z"):
                x = {"q": call.q, "k": call.k, "v": call.v, "z": call.z}[name]
                if x is None:
                    raise UnreadableAttention(
                        f"{site.name} ({site.module}) has no {name} to capture"
                    )
                mine = kv if name in ("k", "v") else heads
                self.keep(name, site, _take(_take(x, 1, mine), 2, positions))

    @guarded
    @contextmanager
    def hooks(self) -> Iterator[None]:
        """Store streams and layer outputs of this thread's runs in the block."""
        runs: dict[nn.Module, int] = {}
        projected: dict[str, Tensor] = {}  # inputs of output projections that wait for a norm
        # before the hooks are set: weights are found by runs of the module or its parts
        of_results = self.request.sites if "result" in self.request.names else ()
        weights = {site: writing_weights(self.model, site) for site in of_results}
        behind_norm = {site for site, w in weights.items() if read_for_run(w)}
        watched = self._watched(behind_norm)
        modules = {path: self.model.module.get_submodule(path) for path, _, _ in watched}

        def take(path: str, run: int, side: str, x: Tensor | None) -> None:
            wanted = watched.get((path, run, side), ())
            if not wanted:
                return
            if x is None:
                raise UnreadableAttention(f"{path} has no tensor at its {side}put to capture")
            x = x.clone()  # the family may add to the stream in place
            for name, site, where in wanted:
                value = x * where.scale if where.scale != 1 else x
                if value.dim() == 2:  # OPT and mixtures of experts run on flattened rows
                    shape = self.shapes.get(site.name) or next(iter(self.shapes.values()))
                    value = value.unflatten(0, shape)
                value = _take(value, 1, self.request.positions)
                if name == "result" and site in behind_norm:
                    projected[site.name] = value
                elif isinstance(site, Site) and name in ("result", _ADDED):
                    given, added = (value, None) if name == "result" else (None, value)
                    given = projected.pop(site.name) if given is None else given
                    self.keep("result", site, self._result(weights[site], given, added))
                else:
                    self.keep(name, site, value)

        with ExitStack() as stack:
            for path, module in modules.items():

                def before(module: nn.Module, args: tuple, kwargs: dict, path: str = path) -> None:
                    run = runs[module] = runs.get(module, -1) + 1
                    given = first_tensor(args)
                    x = first_tensor(kwargs) if given is None else given
                    take(path, run, "in", x)

                def after(module: nn.Module, args: tuple, output: object, path: str = path) -> None:
                    take(path, runs[module], "out", first_tensor(output))

                for handle in (
                    module.register_forward_pre_hook(in_this_thread(before), with_kwargs=True),
                    module.register_forward_hook(in_this_thread(after)),
                ):
                    stack.callback(handle.remove)
            yield

    def _watched(
        self, behind_norm: Collection[Site]
    ) -> dict[tuple[str, int, str], list[tuple[str, Site | StreamLayer, Where]]]:
        """Return the requested tensors of modules, by path, run and side."""
        watched: dict[tuple[str, int, str], list[tuple[str, Site | StreamLayer, Where]]] = {}
        for layer in (*self.request.sites, *self.request.others):
            places = {
                n: layer.streams[n]
                for n in STREAM_NAMES
                if n in self.request.names and n in layer.streams
            }
            if isinstance(layer, Site) and "result" in self.request.names:
                places["result"] = Where(layer.projection or "", "in", layer.run)
                if layer in behind_norm:  # the scale of the norm is read from what it gives
                    places[_ADDED] = layer.streams["attn_out"]
            for name, where in places.items():
                watched.setdefault((where.module, where.run, where.side), []).append(
                    (name, layer, where)
                )
        return watched

    def _result(self, weights: HeadWeights, given: Tensor, attn_out: Tensor | None) -> Tensor:
        """Return what each requested head adds, from the input of the output projection."""
        site = weights.site
        heads = list(self.request.heads[site.stack, site.layer])
        given = given.unflatten(-1, (site.n_heads, site.d_v))
        outputs = head_outputs(weights, given, attn_out, gated=True)
        return outputs.of(heads).added(given[..., heads, :])


def capture(
    model: Transformer,
    prompts: Any,
    names: Sequence[str] = ("pattern",),
    *,
    layers: int | Sequence[int] | None = None,
    stack: str | None = None,
    heads: int | Sequence[int] | None = None,
    rows: int | slice | Sequence[int] | Tensor | None = None,
    positions: int | slice | Sequence[int] | Tensor | None = None,
    edits: Sequence[Edit] = (),
    grad: bool = False,
    to: torch.device | str | None = None,
) -> ActivationCache:
    """Run the model once and return the requested activations.

    Positions count the padded columns of the batch as the model sees them.
    """
    request = requested(model, names, layers, stack, heads, rows, positions)
    recorder = Recorder(model, request, to=None if to is None else torch.device(to))
    with torch.enable_grad() if grad else torch.no_grad(), ExitStack() as contexts:
        if edits:
            contexts.enter_context(model.edited(*edits))
        active = model.active_edits
        inputs = model.inputs(prompts)  # before the visit: it may run the model on padding
        contexts.enter_context(recorder.hooks())
        contexts.enter_context(model.visited(recorder.visit))
        logits = model.run(inputs)
    if bool(torch.isnan(logits).any()):
        raise NonFiniteError(
            f"{model.name}: NaN in the output, though every attention output is finite: it "
            "comes from "
            f"the last MLP, norm or head; the activations overflow in {model.dtype} or the "
            "weights are damaged"
        )
    for site in request.sites:
        for name in request.names:
            if has_activation(name, site) and (name, site.stack, site.layer) not in recorder.values:
                raise UnreadableAttention(
                    f"{site.name} (module {site.module}) did not run on these inputs, so it has no "
                    f"{name}; name the stack or the layers that did"
                )
    return ActivationCache(logits, recorder.values, request.heads, active)
