"""Adapter for models held by nnsight, local or remote; the only module that imports that package.

Locally, nnsight wraps a module with unchanged numbers, which is read like any other model. For
remote models, functions of `in_trace` are sent inside a trace: attention calls are found through
`.source` by the content of the operation, not by its number, which has changed between versions.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import nnsight
import torch
from torch import Tensor, nn

from interp.core.errors import LoadError, UnreadableAttention
from interp.model.calls.sites import Site
from interp.model.hooks import in_trace
from interp.model.hooks.inference import in_this_thread, inference
from interp.model.inputs import is_encoder_decoder, probe_inputs, takes
from interp.model.locate.find_sites import stacks_and_layers
from interp.model.sources.packages import Held
from interp.model.sources.remote import Asked, HeadChanges, RemoteModel

OPERATION = re.compile(r"attention_interface_\d+")
SCORES = 2**20  # numbers of a pattern that are computed at a time, as blocks of rows
_COMPARED = ("nnsight", "transformers", "torch")


class VersionWarning(UserWarning):
    """The remote machine runs other package versions than this one."""


def unwrap(held: Any, attention: str | None = None) -> Held:
    """Return the module that nnsight wraps."""
    if attention is not None:
        raise LoadError("attention cannot be chosen of a model that nnsight holds")
    module = held._module
    _require_model(held)
    if any(p.device.type == "meta" for p in module.parameters()):
        raise LoadError(
            f"this {type(held).__name__} has no weights yet; give it dispatch=True, or run it "
            "elsewhere with remote=True"
        )
    return Held(module, getattr(held, "tokenizer", None), _name(held), "nnsight, the module")


def wrap(module: nn.Module, tokenizer: Any) -> Any:
    """Return a plain nnsight model, or with a tokenizer one that can run remotely."""
    if tokenizer is None:
        return nnsight.NNsight(module)
    return nnsight.TransformersModel(module, tokenizer=tokenizer)


def by_name(name: str, revision: str | None = None) -> Any:
    """Return an nnsight model without weights, known by its name on the hub."""
    options = {} if revision is None else {"revision": revision}
    try:
        return nnsight.TransformersModel(name, **options)
    except (OSError, ValueError) as error:
        text = " ".join(str(error).split())[:300]
        raise LoadError(
            f"{name}: its config and tokenizer are needed here, and cannot be read: {text}"
        ) from error


def remote(held: Any, where: bool | str, name: str | None, tokenizer: Any) -> RemoteModel:
    """Return a remote model, whose attention is found by one remote run."""
    if not hasattr(held, "to_model_key"):
        raise LoadError(
            f"{type(held).__name__} names no model for a server; use "
            "nnsight.TransformersModel(name)"
        )
    _require_model(held)
    nnsight.register(in_trace)
    runs = RunTrace(held, where, _address(where))
    if where != "local":
        _require_server(held, runs.where)
    modules = _attentions(held._module)
    places = [(path, label) for path in modules for label in _labels(held, path)]
    inputs = probe_inputs(held._module, 1, "cpu")
    sketches = runs.run(inputs, [(*place, ()) for place in places], in_trace.sketch)
    calls = {
        path: (label, x) for (path, label), x in zip(places, sketches, strict=True) if x is not None
    }
    silent = [path for path in modules if path not in calls]
    if silent:
        tried = ", ".join(label for path, label in places if path == silent[0])
        raise UnreadableAttention(
            f"{silent[0]}: none of the operations {tried} is an attention call under nnsight "
            f"{version('nnsight')}: its labels have moved; read the model here (no remote=)"
        )
    runs.labels = {path: label for path, (label, _) in calls.items()}
    sites, errors = _sites(held._module, inputs, {p: x for p, (_, x) in calls.items()})
    return RemoteModel(
        held._module,
        name or _name(held) or type(held._module).__name__,
        tuple(sites),
        tokenizer or getattr(held, "tokenizer", None),
        source=f"nnsight, at {runs.where}",
        runs=runs,
        errors=errors,
    )


@dataclass(eq=False)
class RunTrace:
    """One trace per run: functions are sent, numbers are returned."""

    held: Any
    remote: bool | str
    where: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def run(
        self,
        inputs: Mapping[str, Tensor],
        places: Sequence[tuple[str, str, tuple]],
        reducer: Callable,
        steps: Mapping[str, HeadChanges] | None = None,
    ) -> list[Any]:
        """Return the result of an `in_trace` function for each place, in running order.

        `steps` are changes of z, by module; the function sees the attention call after them.
        """
        # objects that the block refers to are sent with it, so it may use only these names
        model, remote, save, given = self.held, self.remote, nnsight.save, dict(inputs)
        changes, change = dict(steps or {}), in_trace.edit_z
        # without no_grad a trace keeps the autograd graph; the block itself must be self-contained
        with torch.no_grad(), _answered(self.where), inference(model._module):  # noqa: SIM117  a trace's own block
            with model.trace(given, remote=remote):
                results = save([])
                for path, label, more in places:
                    operation = getattr(model.get(path).source, label)
                    inside, output = operation.inputs, operation.output
                    if path in changes:
                        change(inside, output, changes[path])
                    results.append(reducer(inside, output, *more))
        return list(results)

    def logits(
        self, inputs: Mapping[str, Tensor], sites: Sequence[Site], steps: Mapping[str, HeadChanges]
    ) -> Tensor:
        """Return the logits under changes of z, by module."""
        places = [(site.module, self.labels[site.module]) for site in sites]
        places = [(path, label, steps[path]) for path, label in places if path in steps]
        model, remote, save, given = self.held, self.remote, nnsight.save, dict(inputs)
        change, read = in_trace.edit_z, in_trace.logits_of
        # without no_grad a trace keeps the autograd graph; the block itself must be self-contained
        with torch.no_grad(), _answered(self.where), inference(model._module):  # noqa: SIM117  a trace's own block
            with model.trace(given, remote=remote):
                outputs = save([])
                for path, label, changes in places:
                    operation = getattr(model.get(path).source, label)
                    change(operation.inputs, operation.output, changes)
                outputs.append(read(model.output))
        return outputs[0]

    def z_totals(
        self,
        inputs: Mapping[str, Tensor],
        sites: Sequence[Site],
        real: Sequence[Tensor],
        by_position: bool,
    ) -> list[dict[str, Any]]:
        """Return for every site the sum of z over counted queries."""
        places = [
            (site.module, self.labels[site.module], (rows, by_position))
            for site, rows in zip(sites, real, strict=True)
        ]
        return self.run(inputs, places, in_trace.z_totals)

    def means(
        self,
        inputs: Mapping[str, Tensor],
        sites: Sequence[Site],
        asked: Sequence[Sequence[Asked]],
        real: Sequence[Tensor],
        steps: Mapping[str, HeadChanges] | None = None,
    ) -> list[dict[str, Any]]:
        """Return for every site the means over counted rows, under changes of z by module."""
        places = [
            (site.module, self.labels[site.module], (list(mine), rows, _block(site, rows)))
            for site, mine, rows in zip(sites, asked, real, strict=True)
        ]
        return self.run(inputs, places, in_trace.row_means, steps)

    def step_means(
        self, inputs: Mapping[str, Tensor], sites: Sequence[Site], asked: Sequence[str], steps: int
    ) -> tuple[Tensor, list[dict[str, Any]]]:
        """Return generated ids, and statistics of the last row at every step and site."""
        places = [(site.module, self.labels[site.module]) for site in sites]
        model, remote, save, given = self.held, self.remote, nnsight.save, dict(inputs)
        reducer, names = in_trace.last_row, tuple(asked)
        more = {"max_new_tokens": steps, "min_new_tokens": steps, "do_sample": False}
        # without no_grad a trace keeps the autograd graph; the block itself must be self-contained
        with torch.no_grad(), _answered(self.where), inference(model._module):  # noqa: SIM117  a trace's own block
            with model.generate(given, remote=remote, **more) as tracer:
                rows, ids = save([]), save([])
                for _ in tracer.iter[:steps]:
                    for path, label in places:
                        operation = getattr(model.get(path).source, label)
                        rows.append(reducer(operation.inputs, operation.output, names))
                ids.append(tracer.result)
        return ids[0], list(rows)


def _block(site: Site, rows: Tensor) -> int:
    """Return the rows of a pattern to compute at a time; keys are about as many as queries."""
    batch, length = rows.shape
    return max(1, SCORES // max(1, batch * site.n_heads * length))


class _answered:
    """Report an error of the server, or a missing answer, in one line."""

    def __init__(self, where: str):
        self.where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        if error is None or self.where == "remote='local'":
            return
        import httpx
        from nnsight.intervention.backends.remote import RemoteError

        what = str(error).strip().partition("\n")[0][:300] or type(error).__name__
        if isinstance(error, RemoteError) and "out of memory" in what.lower():
            raise MemoryError(f"at {self.where}: {what}") from error  # handled by smaller batches
        if isinstance(error, RemoteError):
            raise LoadError(f"the server at {self.where} failed: {what}") from error
        closed = (httpx.HTTPError, OSError)
        if isinstance(error, closed) or type(error).__module__.startswith("websocket"):
            raise LoadError(
                f"nothing answers at {self.where} ({what}); check that it runs and that the "
                "address is right; "
                "remote='local' does the same run in this process"
            ) from error


def _require_model(held: Any) -> None:
    if not hasattr(held._module, "config"):
        raise LoadError(
            f"nnsight holds a {type(held._module).__name__} here, which is not a Hugging Face "
            "model "
            "(it has no config)"
        )


def _name(held: Any) -> str | None:
    name = getattr(held, "repo_id", None)
    return name if isinstance(name, str) and name else None


def _address(where: bool | str) -> str:
    if where == "local":
        return "remote='local'"
    return where if isinstance(where, str) else str(nnsight.CONFIG.API.HOST)


def _require_server(held: Any, where: str) -> None:
    """Check that the server answers and runs the same versions as this machine."""
    import httpx
    from huggingface_hub.errors import HFValidationError

    try:
        held.to_model_key()
    except (HFValidationError, ValueError, TypeError) as error:
        raise LoadError(
            "a server knows a model by its name on the hub, and this one has none; make it with "
            "nnsight.TransformersModel(name), or try it with remote='local'"
        ) from error
    with _answered(where):
        answer = httpx.get(f"{where}/env", timeout=httpx.Timeout(5.0, read=30.0))
        answer.raise_for_status()
    packages = answer.json().get("packages", {})
    differ = {
        name: (str(packages[name]).partition("+")[0], version(name).partition("+")[0])
        for name in _COMPARED
        if name in packages
    }
    differ = {name: pair for name, pair in differ.items() if pair[0] != pair[1]}
    text = ", ".join(f"{n} {theirs} (here {ours})" for n, (theirs, ours) in differ.items())
    if "nnsight" in differ:
        raise LoadError(
            f"the server at {where} has {text}; a trace is read only by the nnsight that wrote it: "
            f"pip install nnsight=={differ['nnsight'][0]}"
        )
    if differ:
        warnings.warn(
            f"the server at {where} has {text}; the attention code that runs is the server's",
            VersionWarning,
            stacklevel=4,
        )


def _attentions(module: nn.Module) -> list[str]:
    """Return the modules that call transformers' attention interface, in running order."""
    named = {path: m for path, m in module.named_modules() if _calls_interface(type(m))}
    if not named:
        raise UnreadableAttention(
            f"{type(module).__name__} computes its attention in its own code; inside a trace "
            "only families can be read that call transformers' attention interface; read it here "
            "(no remote=)"
        )
    order: list[str] = []
    handles = [
        m.register_forward_hook(in_this_thread(lambda *_, path=path: order.append(path)))
        for path, m in named.items()
    ]
    cached = {"use_cache": False} if "use_cache" in takes(module) else {}
    device = next(module.parameters()).device
    try:
        # without weights only shapes are computed; if those need numbers, use the module order
        with torch.no_grad(), inference(module):
            module(**probe_inputs(module, 1, device), **cached)
    except (RuntimeError, NotImplementedError) as error:
        if device.type != "meta":
            raise LoadError(f"{type(module).__name__} does not run: {error}") from error
        order = list(named)
    finally:
        for handle in handles:
            handle.remove()
    again = sorted({path for path in order if order.count(path) > 1})
    if again:
        raise UnreadableAttention(
            f"{again[0]} runs {order.count(again[0])} times in a forward (layers share it), and a "
            "trace shows it once; read the model here (no remote=)"
        )
    return order


def _calls_interface(kind: type) -> bool:
    try:
        return "attention_interface(" in inspect.getsource(inspect.unwrap(kind.forward))
    except (OSError, TypeError):
        return False


def _labels(held: Any, path: str) -> list[str]:
    names = held.get(path).source.names
    labels = [name for name in names if OPERATION.fullmatch(name)]
    if not labels:
        raise UnreadableAttention(
            f"{path}: nnsight {version('nnsight')} names no operation attention_interface_N there; "
            f"it names {', '.join(names[:4])} and {max(0, len(names) - 4)} more: its labels have "
            "moved; read the model here (no remote=)"
        )
    return labels


def _sites(
    module: nn.Module, inputs: Mapping[str, Tensor], calls: Mapping[str, dict[str, Any]]
) -> tuple[list[Site], dict[Site, float]]:
    target = inputs["decoder_input_ids"].shape[1] if is_encoder_decoder(module) else None
    stacks, layers = stacks_and_layers(
        list(calls), [(x["queries"], x["keys"], x["causal"]) for x in calls.values()], target
    )
    sites, errors = [], {}
    for (path, x), stack, layer in zip(calls.items(), stacks, layers, strict=True):
        site = Site(
            stack,
            layer,
            path,
            0,
            x["n_heads"],
            x["n_kv_heads"],
            x["d_head"],
            x["d_v"],
            watched=False,
            has_qk=True,
            causal=x["causal"],
        )
        sites.append(site)
        errors[site] = x["error"]
    return sites, errors
