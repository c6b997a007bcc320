"""One kind of model in the zoo: how it is built, what it is fed, what its own attentions are."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from .inputs import Padding, make_inputs

Site = tuple[str, int]  # stack, layer

EAGER_ONLY = ("eager",)
BOTH = ("eager", "sdpa")
UNPADDED: tuple[Padding, ...] = (None,)
EITHER_SIDE: tuple[Padding, ...] = (None, "left", "right")


@dataclass(frozen=True, eq=False)
class Family:
    """A tiny random model of one architecture; features are names that tests select by."""

    name: str
    features: tuple[str, ...]
    model_class: str
    config: Mapping[str, Any]
    #: every softmax attention of one forward, in call order, with its true layer index
    sites: tuple[Site, ...]
    kind: str = "text"
    #: how much wider attention weights and embeddings are than transformers draws them
    gain: float = 3.0
    #: the sites whose attentions the model returns itself, in the same order
    returned: tuple[Site, ...] | None = None
    attentions: tuple[str, ...] = BOTH
    paddings: tuple[Padding, ...] = EITHER_SIDE
    #: what is peculiar to the family -> the reason, for tests to look up by name
    conventions: Mapping[str, str] = field(default_factory=dict)

    def build(self, attention: str = "eager", seed: int = 0) -> nn.Module:
        """A new model, the caller's to change; the global random state is left as it was."""
        if attention not in self.attentions:
            reason = self.conventions.get(f"no-{attention}", "not an attention of this zoo")
            raise ValueError(f"{self.name} does not run under {attention!r}: {reason}")
        import transformers

        cls = getattr(transformers, self.model_class)
        # A config is copied because transformers writes into the mappings that it is given.
        config = cls.config_class(**copy.deepcopy(dict(self.config)))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = cls._from_config(config, attn_implementation=attention, dtype=torch.float32)
            _sharpen(model, self.gain)
        return model.eval()

    def model(self, attention: str = "eager", seed: int = 0) -> nn.Module:
        """The same as ``build``, but one per process: look, do not change."""
        return _cached(self.name, attention, seed)

    def inputs(
        self, padding: Padding = None, batch: int = 2, length: int = 12, seed: int = 0
    ) -> dict[str, Tensor]:
        """Keyword arguments of the model; with ``padding`` the last row is shorter by three."""
        if padding not in self.paddings:
            reason = self.conventions.get("padding", "it takes no padding")
            raise ValueError(f"{self.name} is not padded on the {padding}: {reason}")
        return make_inputs(self.kind, self.config, padding, (batch, length), seed)

    def expected(
        self, model: nn.Module, inputs: Mapping[str, Tensor]
    ) -> list[tuple[str, int, Tensor]]:
        """The model's own eager attentions, (stack, layer, [batch, head, query, key]).

        The weights are those of ``model``, whatever attention it runs under. Sites that the
        model does not return (see ``returned``) are missing.
        """
        returned = self.sites if self.returned is None else self.returned
        if not returned:
            return []
        with torch.no_grad():
            out = _eager_twin(model)(**inputs, output_attentions=True)
        found = list(_attentions(out))
        if len(found) != len(returned):
            raise AssertionError(f"{self.name} returned {len(found)} attentions, not {returned}")
        return [(*site, pattern) for site, pattern in zip(returned, found, strict=True)]

    def __repr__(self) -> str:
        return f"Family({self.name})"


def output(result: Any) -> Tensor:
    """The tensor to compare between runs: logits, or the last hidden state of a bare tower."""
    for name in ("logits", "logits_per_image", "last_hidden_state"):
        if getattr(result, name, None) is not None:
            return getattr(result, name)
    raise AssertionError(f"nothing to compare in {type(result).__name__}")


@cache
def _cached(name: str, attention: str, seed: int) -> nn.Module:
    from . import FAMILIES

    return FAMILIES[name].build(attention, seed)


def _eager_twin(model: nn.Module) -> nn.Module:
    """The model itself where it runs eagerly, else an eager copy: its config is never touched."""
    config: Any = model.config
    if config._attn_implementation == "eager":
        return model
    cls: Any = type(model)
    with torch.random.fork_rng(devices=[]):
        twin = cls._from_config(copy.deepcopy(config), attn_implementation="eager")
    weight = next(model.parameters())
    twin.to(dtype=weight.dtype, device=weight.device).load_state_dict(model.state_dict())
    return twin.eval()


def _attentions(out: Any) -> Iterator[Tensor]:
    """Every attention in a model's output, in the order in which the layers ran."""
    for tower in ("vision_model_output", "text_model_output"):
        if getattr(out, tower, None) is not None:
            yield from out[tower].attentions
    yield from getattr(out, "attentions", None) or ()
    yield from getattr(out, "encoder_attentions", None) or ()
    own, cross = (getattr(out, f"{name}_attentions", None) or () for name in ("decoder", "cross"))
    for pair in zip(own, cross, strict=True):
        yield from pair


def _sharpen(model: nn.Module, gain: float) -> None:
    """Make softmaxes peaked and let no parameter hide what it multiplies by being zero.

    Attention projections and embeddings are multiplied by ``gain``; biases, relative position
    tables and class tokens that start at zero are drawn at random; norms stay as they are.
    """
    for owner_name, owner in model.named_modules():
        if "norm" in type(owner).__name__.lower():
            continue
        attends = "att" in owner_name and "linear_att" not in owner_name
        for weight in owner.parameters(recurse=False):
            with torch.no_grad():
                if not weight.any():
                    weight.normal_(std=0.1)
                elif weight.dim() > 1 and (attends or isinstance(owner, nn.Embedding)):
                    weight.mul_(gain)
