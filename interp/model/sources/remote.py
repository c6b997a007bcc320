"""Models that run on another machine: requests for pattern statistics go out, numbers come back.

No tensor of the model is on this machine, so functions that need one are refused by name: edits,
captures, logits and scores of weights. `interp.score` of patterns remains: the mass on a
predicate's targets, entropy, distance and the largest weight, computed on the remote machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor

from interp.core.errors import NonFiniteError, OptionError, PromptError
from interp.core.prompts import Prompts
from interp.model.edits import Edit
from interp.model.hooks.tap import Visit
from interp.model.locate.sites import Site
from interp.model.model import Model
from interp.model.padding import LeftPadding, Padding
from interp.model.transformer import Inputs
from interp_kernels.problem import Attention
from interp_kernels.reductions import Distance, Entropy, Largest, Mass, Reduction
from interp_kernels.targets import target_tile

Asked = tuple[str, str, Tensor | None]
"""Label, statistic (`mass`, `entropy`, `distance`, `largest`), and the targets of a mass."""
KNOWN = {Entropy: "entropy", Distance: "distance", Largest: "largest"}


class Runs(Protocol):
    """Way to run a model remotely, with functions of `interp.model.hooks.in_trace`."""

    where: str

    def means(
        self,
        inputs: Mapping[str, Tensor],
        sites: Sequence[Site],
        asked: Sequence[Sequence[Asked]],
        real: Sequence[Tensor],
    ) -> list[dict[str, Any]]:
        """Return the result of `in_trace.row_means` for every site."""
        ...  # fmt: skip

    def step_means(
        self, inputs: Mapping[str, Tensor], sites: Sequence[Site], asked: Sequence[str], steps: int
    ) -> tuple[Tensor, list[dict[str, Any]]]:
        """Return generated ids, and the result of `in_trace.last_row` for every step and site."""
        ...


class RemotePadding(Padding):
    """Padding of a remote model, which is not tested."""

    @property
    def left(self) -> LeftPadding | None:  # type: ignore[override]
        """Refused: the effect of left padding on the numbers cannot be tested.

        Raises:
            PromptError: always.
        """
        raise PromptError(
            f"{self.name} runs elsewhere, where left padding is not tried out; use padding='right'"
        )

    @property
    def right(self) -> bool:  # type: ignore[override]
        """True: padding on the right is assumed to change nothing."""
        return True


@dataclass(eq=False)
class RemoteModel(Model):
    """Model that runs on another machine; made by `interp.load(nnsight_model, remote=...)`."""

    runs: Runs = field(kw_only=True)
    # error of pattern·v against z in the first run, relative to the largest entry
    errors: Mapping[Site, float] = field(default_factory=dict)

    @property
    def elsewhere(self) -> str:
        """Location where the model runs."""
        return self.runs.where

    @property
    def device(self) -> torch.device:
        """Device on which prompts are made: this machine's."""
        return torch.device("cpu")

    @property
    def content_hash(self) -> str:  # type: ignore[override]
        """Statement that the hash of remote weights is unknown."""
        return f"not known: the weights are at {self.elsewhere}"

    @property
    def padding(self) -> Padding:  # type: ignore[override]
        """Padding rules: on the right only, since nothing can be tested remotely."""
        return RemotePadding(self.module, self.config, self.name)

    def _refuse(self, what: str) -> NoReturn:
        raise OptionError(
            f"{what}: {self.name} runs at {self.elsewhere}, and only numbers per head come back "
            "from there; interp.score works for detectors and statistics; for the rest load the "
            "model on this machine (no remote=)"
        )

    def visited(
        self, visit: Visit, *, fused: bool = False, streamed: bool = False
    ) -> AbstractContextManager[None]:
        """Raise: there is no tensor to visit."""
        self._refuse("edits and captures need the activations")

    def edited(self, *edits: Edit) -> AbstractContextManager[Model]:
        """Raise: there is no tensor to edit."""
        self._refuse("edits need the activations")

    def _forward(self, inputs: Inputs) -> Tensor:
        self._refuse("logits stay where the model is")

    def untrained(self) -> Any:
        """Raise: random weights would need the model's memory on this machine."""
        self._refuse("null='random-init' needs a model of this size here")

    def means(
        self,
        inputs: Mapping[str, Tensor],
        tokens: Tensor | None,
        asked: Mapping[Site, Mapping[str, Reduction]],
    ) -> dict[Site, dict[str, Tensor]]:
        """Return per site and label the mean over counted rows, `[prompt, head]`, in one run.

        Args:
            inputs: the input tensors.
            tokens: tokens that predicates read, in the columns of `inputs`.
            asked: reductions by label, per site; sites without any are left out.

        Raises:
            OptionError: the reduction is not available remotely.
            NonFiniteError: NaN or infinity in an attention output; names the layer.
        """
        sites = [site for site in self.sites if asked.get(site)]
        masks = [_real(inputs, site) for site in sites]
        targets: dict[tuple[str, int], Tensor] = {}
        wanted = []
        for site, real in zip(sites, masks, strict=True):
            mine: list[Asked] = []
            for label, reduction in asked[site].items():
                if type(reduction) in KNOWN:
                    mine.append((label, KNOWN[type(reduction)], None))
                elif isinstance(reduction, Mass):
                    key = label, real.shape[1]
                    if key not in targets:
                        targets[key] = _targets(reduction, real, tokens)
                    mine.append((label, "mass", targets[key]))
                else:
                    self._refuse(f"{label} asks for {type(reduction).__name__}")
            wanted.append(mine)
        found = self.runs.means(inputs, sites, wanted, masks)
        for site, numbers in zip(sites, found, strict=True):
            if not numbers["finite"]:
                raise NonFiniteError(
                    f"{self.name}: NaN or infinity in the attention output of {site.stack} layer "
                    f"{site.layer} (module {site.module}) at {self.elsewhere}"
                )
        return {site: numbers["means"] for site, numbers in zip(sites, found, strict=True)}

    def while_generating(
        self, prompts: Any, max_new_tokens: int, statistics: Sequence[str] = ("entropy",)
    ) -> tuple[Tensor, dict[Site, dict[str, Tensor]]]:
        """Generate greedily on the remote machine; return the ids and each new token's statistics.

        Args:
            prompts: prompts of equal length.
            max_new_tokens: number of tokens to generate.
            statistics: any of `entropy`, `distance`, `largest` and `first_token` (mass on it).

        Returns:
            Ids `[prompt, pos]`, and per site and statistic `[step, prompt, head]`; the first step
            is the prompt's last token.

        Raises:
            OptionError: there is no such statistic.
            PromptError: the prompts have unequal lengths, for which generation pads on the left.
        """
        unknown = set(statistics) - {*KNOWN.values(), "first_token"}
        if unknown:
            raise OptionError(
                f"while generating elsewhere, {', '.join(sorted(unknown))} are not formed; "
                f"known: {', '.join(KNOWN.values())}, first_token"
            )
        prompts = Prompts.of(prompts, self)
        if len({len(p) for p in prompts.ids}) > 1:
            raise PromptError("generating elsewhere takes prompts of one length; run them apart")
        inputs = self.inputs(prompts) | {}
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        ids, rows = self.runs.step_means(inputs, self.sites, tuple(statistics), max_new_tokens)
        by_site = {site: rows[i :: len(self.sites)] for i, site in enumerate(self.sites)}
        return ids, {
            site: {name: torch.stack([r[name] for r in mine]) for name in statistics}
            for site, mine in by_site.items()
        }


def _real(inputs: Mapping[str, Tensor], site: Site) -> Tensor:
    """Return the mask of a site's queries that are tokens, `[prompt, query]`."""
    of_decoder = "decoder_input_ids" in inputs and site.stack != "encoder"
    start = "decoder_" if of_decoder else ""
    mask = inputs.get(f"{start}attention_mask")
    if mask is not None:
        return mask.bool()
    ids = inputs.get(f"{start}input_ids")
    if ids is None:
        raise OptionError(
            f"a model that runs elsewhere is scored on token ids; given {', '.join(sorted(inputs))}"
        )
    return torch.ones_like(ids, dtype=torch.bool)


def _targets(mass: Mass, real: Tensor, tokens: Tensor | None) -> Tensor:
    """Return the positions where a predicate holds, `[prompt or 1, query, key]`."""
    batch, length = real.shape
    nothing = torch.zeros(batch, 1, length, 1)
    attention = Attention(
        q=nothing, k=nothing, v=nothing, causal=False, tokens=tokens,
        query_padding=None if bool(real.all()) else real,
        key_padding=None if bool(real.all()) else real,
    )  # fmt: skip
    return target_tile(attention, mass)
