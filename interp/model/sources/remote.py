"""Models that run on another machine: requests for pattern statistics go out, numbers come back.

No tensor of the model is on this machine, so functions that need one are refused by name: captures,
gradients, edits of patterns and scores of weights. What works: `interp.score` of patterns (the mass
on a predicate's targets, entropy, distance and the largest weight, computed on the remote machine),
logits, and edits that scale or replace the heads' outputs, so that heads can be ablated there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol, Self

import torch
from torch import Tensor

from interp.core.errors import NonFiniteError, OptionError, PromptError
from interp.core.prompts import Prompts
from interp.model.calls.sites import Site
from interp.model.edits import Edit, chosen_positions
from interp.model.head_arguments import require_heads
from interp.model.hooks.tap import Visit
from interp.model.model import Model
from interp.model.padding import Padding, PaddingSide, Way
from interp.model.transformer import Inputs
from interp_kernels.problem import Attention
from interp_kernels.reductions import Distance, Entropy, Largest, Mass, Reduction
from interp_kernels.targets import target_tile

Asked = tuple[str, str, Tensor | None]
"""Label, statistic (`mass`, `entropy`, `distance`, `largest`), and the targets of a mass."""
HeadChanges = list[dict[str, Any]]
"""Changes of z of one attention, as `in_trace.edit_z` takes them."""
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
        steps: Mapping[str, HeadChanges] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the result of `in_trace.row_means` for every site."""
        ...

    def logits(
        self, inputs: Mapping[str, Tensor], sites: Sequence[Site], steps: Mapping[str, HeadChanges]
    ) -> Tensor:
        """Return the logits under changes of z, by module."""
        ...

    def z_totals(
        self,
        inputs: Mapping[str, Tensor],
        sites: Sequence[Site],
        real: Sequence[Tensor],
        by_position: bool,
    ) -> list[dict[str, Any]]:
        """Return the result of `in_trace.z_totals` for every site."""
        ...

    def step_means(
        self, inputs: Mapping[str, Tensor], sites: Sequence[Site], asked: Sequence[str], steps: int
    ) -> tuple[Tensor, list[dict[str, Any]]]:
        """Return generated ids, and the result of `in_trace.last_row` for every step and site."""
        ...


class RemotePadding(Padding):
    """Padding of a remote model, which is not tested."""

    def way(self, side: PaddingSide, longest: int, *, writing: bool = False) -> Way | None:
        """Return the mask for padding on the right, which is assumed to change nothing."""
        if side == "right" and not writing:
            return "mask"
        raise PromptError(
            f"{self.name} runs elsewhere, where left padding is not tried out; use padding='right'"
        )


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
            f"{what}: {self.name} runs at {self.elsewhere}, from where numbers per head and logits "
            "come back; interp.score of detectors and statistics, interp.ablate and edits of "
            "heads' outputs work; for the rest load the model on this machine (no remote=)"
        )

    def visited(self, visit: Visit, **_how: Any) -> AbstractContextManager[None]:
        """Raise: there is no tensor to visit."""
        self._refuse("captures and gradients need the activations")

    @contextmanager
    def edited(self, *edits: Edit) -> Iterator[Self]:
        """Edit every run inside the block; edits of patterns are refused.

        Raises:
            OptionError: an edit names a head that does not exist, or needs the pattern.
        """
        for edit in edits:
            require_heads(self.whole_sites, edit.heads, edit.stack, self.name)
            if edit.parts is None:
                self._refuse(f"{edit.kind} needs the pattern or several prompts at each position")
        with self.remembered(edits):
            yield self

    def _forward(self, inputs: Inputs) -> Tensor:
        return self.runs.logits(inputs, self.sites, self._steps(inputs))

    def _steps(self, inputs: Inputs) -> dict[str, HeadChanges]:
        """Return the changes of the active edits, by module."""
        steps: dict[str, HeadChanges] = {}
        for edit in self.current_edits:
            for site in self.sites:
                if edit.applies(site):
                    steps.setdefault(site.module, []).append(_step(edit, site, inputs))
        return steps

    def gated_logits(
        self,
        inputs: Inputs,
        gates: Mapping[Site, Tensor],
        fixed: Mapping[Site, Tensor],
    ) -> Tensor:
        """Return the logits where each head's output is `gate * z + (1 - gate) * fixed`.

        Args:
            inputs: the input tensors.
            gates: `[row, head]` for each row of the batch, per site.
            fixed: replacement `[#row, head, #query_pos, d_v]` per site; zero without an entry.
        """
        steps = {
            site.module: [
                {"gate": gate, "value": fixed.get(site), "mean": False, "real": None, "where": None}
            ]
            for site, gate in gates.items()
        }
        return self.runs.logits(inputs, self.sites, steps)

    def z_totals(
        self, inputs: Inputs, *, by_position: bool = False
    ) -> dict[Site, tuple[Tensor, Tensor]]:
        """Return per site the sum of z over real tokens and the mask of these tokens.

        Args:
            inputs: the input tensors.
            by_position: sum over prompts at each position; otherwise over all positions, too.

        Returns:
            Sum `[head, 1 or query_pos, d_v]` in float64, and mask `[prompt, query_pos]`.

        Raises:
            NonFiniteError: NaN or infinity in an attention output; names the layer.
        """
        real = [_real(inputs, site) for site in self.sites]
        totals = self.runs.z_totals(inputs, self.sites, real, by_position)
        for site, numbers in zip(self.sites, totals, strict=True):
            self._require_finite(site, numbers)
        return {
            site: (numbers["total"], mask)
            for site, numbers, mask in zip(self.sites, totals, real, strict=True)
        }

    def mean_z(
        self, prompts: Prompts | Sequence, batch_size: int = 16
    ) -> dict[tuple[str, int], Tensor]:
        """Average every head's z over all real positions, for `mean(over="dataset")`."""
        total: dict[tuple[str, int], Tensor] = {}
        count: dict[tuple[str, int], float] = {}
        for batch in self.batches(Prompts.of(prompts, self), batch_size):
            for site, (z, real) in self.z_totals(self.inputs(batch)).items():
                key = site.stack, site.layer
                total[key] = total.get(key, torch.zeros_like(z[:, 0])) + z[:, 0]
                count[key] = count.get(key, 0.0) + float(real.sum())
        return {key: (total[key] / count[key]).to(torch.float32) for key in total}

    def _require_finite(self, site: Site, numbers: Mapping[str, Any]) -> None:
        if not numbers["finite"]:
            raise NonFiniteError(
                f"{self.name}: NaN or infinity in the attention output of {site.stack} layer "
                f"{site.layer} (module {site.module}) at {self.elsewhere}"
            )

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
        results = self.runs.means(inputs, sites, wanted, masks, self._steps(inputs))
        for site, numbers in zip(sites, results, strict=True):
            self._require_finite(site, numbers)
        return {site: numbers["means"] for site, numbers in zip(sites, results, strict=True)}

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


def _step(edit: Edit, site: Site, inputs: Inputs) -> dict[str, Any]:
    """Return an edit of one attention as `in_trace.edit_z` takes it."""
    assert edit.parts is not None
    heads, real = edit.applies(site), _real(inputs, site)
    gate = torch.ones(1, site.n_heads)
    factor = torch.as_tensor(edit.parts.factor, dtype=gate.dtype).detach().reshape(-1).cpu()
    if len(factor) > 1:  # one per head of the edit, over all layers
        factor = torch.stack([factor[i] for i, h in enumerate(edit.heads) if h.layer == site.layer])
    gate[0, heads] = factor
    value = None if edit.parts.value is None else edit.parts.value(site).detach().cpu()
    if value is not None:
        value = value.reshape((1,) * (4 - value.dim()) + tuple(value.shape))
    where = None if edit.positions is None else chosen_positions(edit.positions, real)
    return {"gate": gate, "value": value, "mean": edit.parts.mean, "real": real, "where": where}


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
        q=nothing,
        k=nothing,
        v=nothing,
        causal=False,
        tokens=tokens,
        query_padding=None if bool(real.all()) else real,
        key_padding=None if bool(real.all()) else real,
    )
    return target_tile(attention, mass)
