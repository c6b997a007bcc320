"""Reading of attention through a bridge's hooks, where its modules cannot be watched.

The name of a hook does not always describe its content, so no name is trusted. A hook that does not
fire is reported by name. In some families `hook_attn_scores` is the pattern after the softmax: such
scores are refused. Queries and keys are hooked before their rotary embedding, so they are not
offered. The bridge splits values and z into heads, sometimes incorrectly: `pattern·v == z` is
checked at load as for all models.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from interp.core.errors import UnreadableAttention
from interp.model.calls.call import ALL, Call, RecordedCall, RowIndex

_NEEDED = ("hook_v", "hook_pattern", "hook_z")
_READ = (*_NEEDED, "hook_attn_scores")


@dataclass(eq=False)
class HookedCall(RecordedCall):
    """Attention call as shown by a bridge's hooks."""

    where: str = ""
    scores_are_pattern: bool = False

    def scores(self, rows: RowIndex = ALL) -> Tensor:
        """Return the logits that enter the softmax."""
        if self.scores_are_pattern:
            raise UnreadableAttention(
                f"{self.where}.hook_attn_scores holds the pattern, after its softmax, so this "
                "bridge has no scores; read the Hugging Face model instead of the bridge"
            )
        return super().scores(rows)

    def visible(self, rows: RowIndex = ALL) -> Tensor:
        """Return the mask of visible keys; without scores, keys with weight above zero."""
        if self.scores_are_pattern:
            return self.recorded_pattern[:, :, rows] > 0
        return super().visible(rows)


class HookedBridge(nn.Module):
    """Model of a bridge that passes its attention calls to `tapped` by hooks."""

    bridge: Any
    places: dict[str, str]
    """Prefix of hook names, such as `blocks.0.attn` -> the module that contains them."""

    def __init__(self, held: nn.Module, bridge: Any):
        super().__init__()
        self.held = held
        self.config: Any = held.config
        self.forward = held.forward  # its signature states the inputs of the model
        self.__dict__["bridge"] = bridge  # not a submodule: it contains this object's modules
        points = bridge.hook_dict
        paths = {module: path for path, module in self.named_modules()}
        self.__dict__["places"] = {
            name.rpartition(".")[0]: paths[_owner(self, points[name])]
            for name in points
            if name.endswith(".hook_pattern")
        }
        if not self.places:
            raise UnreadableAttention("the bridge has no hook_pattern anywhere: nothing to read")

    def fresh(self) -> nn.Module:
        """Return random weights of the same shape, without a bridge."""
        return type(self.held)(copy.deepcopy(self.config))

    @contextmanager
    def tapped_by_itself(self, visit: Callable[[nn.Module, Call], None]) -> Iterator[None]:
        """Pass every attention call of the runs in the block to the visitor."""
        seen: dict[str, dict[str, Tensor]] = {place: {} for place in self.places}
        ran: set[str] = set()

        def keep(place: str, name: str) -> Callable:
            def hook(x: Tensor, hook: Any) -> None:
                seen[place][name] = x.clone()  # a later hook may modify it

            return hook

        def finish(place: str) -> Callable:
            def hook(x: Tensor, hook: Any) -> Tensor | None:
                ran.add(place)
                call = _call(place, seen[place] | {"hook_z": x})
                seen[place].clear()
                z = call.z
                visit(self.get_submodule(self.places[place]), call)
                return None if call.z is z else call.z.transpose(1, 2).to(x.dtype)

            return hook

        hooks = []
        for place in self.places:
            hooks += [(f"{place}.{name}", keep(place, name)) for name in _READ if name != "hook_z"]
            hooks.append((f"{place}.hook_z", finish(place)))
        with self.bridge.hooks(fwd_hooks=hooks):
            yield
        for place, names in seen.items():
            if names and place not in ran:
                raise UnreadableAttention(
                    f"{place}.hook_z never fired though {', '.join(names)} did; this bridge cannot "
                    "be read through its hooks; read the Hugging Face model instead"
                )


def _owner(held: nn.Module, point: nn.Module) -> nn.Module:
    return next(m for m in held.modules() if any(child is point for child in m.children()))


def _call(place: str, given: dict[str, Tensor]) -> HookedCall:
    silent = [name for name in _NEEDED if name not in given]
    if silent:
        raise UnreadableAttention(
            f"{place}.{silent[0]} never fired, so its hooks give no pattern (families fire it only "
            "while they return attentions, and no fused kernel forms one); read the Hugging Face "
            "model instead of the bridge"
        )
    pattern = given["hook_pattern"]
    v, z = given["hook_v"].transpose(1, 2), given["hook_z"].transpose(1, 2)
    if z.shape[:3] != pattern.shape[:3]:
        raise UnreadableAttention(
            f"{place}: hook_z is {tuple(given['hook_z'].shape)} beside a pattern of "
            f"{tuple(pattern.shape)}; its heads are split wrongly"
        )
    scores = given.get("hook_attn_scores")
    after = scores is None or bool(torch.equal(scores, pattern)) or _sums_to_one(scores)
    return HookedCall(
        v, z, pattern if scores is None else scores, pattern, where=place, scores_are_pattern=after
    )


def _sums_to_one(x: Tensor) -> bool:
    total = x.float().sum(-1)
    return bool((x >= 0).all()) and bool(((total - 1).abs() < 1e-3).all())
