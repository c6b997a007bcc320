"""Copy-paste scores: whether a head's top key is the token that the answer needs next.

Only the rows of the answer are computed, so memory grows linearly with the length of the prompt.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.core.errors import OptionError, PromptError
from interp.core.intervals import MeanIntervals, mean_intervals
from interp.core.prompts import Prompts
from interp.core.protocols import Progress, silent
from interp.core.result import Result
from interp.heads.needle.instance import Instance, prompts_of
from interp.heads.per_head import head_value_columns
from interp.model.calls.call import Call
from interp.model.calls.sites import Site, Where
from interp.model.content import result_provenance
from interp.model.hooks.inference import inference
from interp.model.inputs import generates, takes
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import pandas as pd

    from interp.model.model import Model

TOKENS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False, repr=False)
class CopyPaste(Result):
    """Tokens copied by every head in every instance.

    Args:
        values: per attention the share of the needle copied, `[trial, head]`.
        right: share of the answer's tokens that the model itself got right, per trial.
        chance: expected score of a head whose top key is drawn uniformly from the visible ones.
        instances: the trials.
    """

    values: dict[Site, Float[Tensor, "trial head"]]
    right: Float[Tensor, " trial"]
    chance: Float[Tensor, " trial"]
    instances: tuple[Instance, ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    _units = ("stack", "layer", "head")
    _holds = (Site, Where, Instance)

    @property
    def per_prompt(self) -> Float[np.ndarray, "row trial"]:  # type: ignore[override]
        """Share of the needle that the head of every row copied in every instance."""
        values = head_value_columns({"copy_paste": self.values})[1]
        return values if self._kept is None else values[list(self._kept)]

    def _rows(self) -> pd.DataFrame:
        """Return one row per head."""
        import pandas as pd

        columns, _ = head_value_columns({"copy_paste": self.values}, self.clusters)
        return pd.DataFrame(columns)

    @property
    def clusters(self) -> tuple[str, ...]:
        """Label of the needle of every instance; instances of one are no independent evidence."""
        return tuple(f"needle {x.needle}" for x in self.instances)

    def _intervals(self, level: float) -> MeanIntervals:
        values = head_value_columns({"copy_paste": self.values})[1]
        values = values if self._kept is None else values[list(self._kept)]
        # as the authors count, a score may exceed 1
        most = None if self.provenance.get("options", {}).get("authors") else 1.0
        return mean_intervals(values, level, clusters=self.clusters, bounds=(0.0, most))

    def _completed(self, rows: pd.DataFrame) -> pd.DataFrame:
        return super()._completed(self._intervals(0.95).in_frame(rows))

    def _bounds_of(self, frame: pd.DataFrame, level: float) -> np.ndarray:
        return self._intervals(level).ends

    def _facts(self) -> Mapping[str, Any]:
        return {"unit": "share of the needle", "null": float(self.chance.mean())}

    def score(self) -> dict[tuple[int, int], float]:
        """Return the mean over the instances, by (layer, head)."""
        return {
            (site.layer, head): float(value)
            for site, x in self.values.items()
            for head, value in enumerate(x.mean(0))
        }

    def where(self, keep: Bool[Tensor, " trial"]) -> CopyPaste:
        """Return a selection of the instances."""
        chosen = tuple(x for x, k in zip(self.instances, keep.tolist(), strict=True) if k)
        values = {site: x[keep] for site, x in self.values.items()}
        return CopyPaste(values, self.right[keep], self.chance[keep], chosen, self.provenance)

    def solved(self, success: float) -> CopyPaste:
        """Return the instances with at least this share of the answer right.

        Raises:
            PromptError: no instance qualifies.
        """
        if not 0 <= success <= 1:
            raise OptionError(f"success={success}: it must be a share of the answer, from 0 to 1")
        keep = self.right >= success
        if not bool(keep.any()):
            raise PromptError(
                f"no instance reaches success: the model gets at most "
                f"{float(self.right.max()):.2f} of an "
                f"answer right in {len(keep)} instances; use shorter haystacks, an easier task, "
                f"or success=0, which scores every instance"
            )
        return self.where(keep)


@takes_model
def copy_paste(
    model: Model,
    instances: Sequence[Instance],
    *,
    authors: bool = False,
    progress: Progress = silent,
) -> CopyPaste:
    """Score every head by what it copies from the needle.

    By default the answer is given (teacher forcing) and a step counts for a head if its largest
    weight is in the needle, on the token that comes next; the score is the share of the needle's
    distinct tokens copied in this way, |g & k| / |k|. Where an answer is asked for at once, a token
    counts if one of its sources is among a head's largest weights, as many as there are sources.
    Where the model's greedy answer is right, these rows equal those of its own decoding, since the
    input tokens are the same.

    Args:
        model: the model to run.
        instances: needles in haystacks.
        authors: count as the published code does: the model decodes by itself, a step counts if the
            top key holds the token it generated, and a repeated token counts again, so that a score
            may exceed 1.
        progress: see `Progress`.

    Raises:
        PromptError: there are no instances, or the prompts do not fit the model.
        OptionError: the authors' count is asked for answers that have no order.

    Unit: share of the needle.

    Cost: One forward pass per instance; only the rows of the answer are formed.

    Null: the expected score of a uniformly drawn top key.

    Not for: instances that the model cannot answer, if only successes are kept; report how many
    were kept.

    Reference: Wu et al. 2024, "Retrieval Head Mechanistically Explains Long-Context Factuality".
    """
    if not instances:
        raise PromptError("there are no needles to search for; give at least one instance")
    if authors and any(x.at_once for x in instances):
        raise OptionError(
            "authors=True counts the tokens that the model decodes one by one; the tokens of these "
            "answers are asked for at once, in any order: use authors=False"
        )
    parts: dict[Site, list[Tensor]] = {}
    right, done = [], 0
    for batch in instance_batches(instances, 1 if authors else TOKENS_AT_ONCE):
        if authors:
            hits, shares = _decoded(model, batch[0])
        else:
            hits, shares = _forced(model, batch)
        for site, x in hits.items():
            parts.setdefault(site, []).append(x)
        right.append(shares)
        done += len(batch)
        progress("instances", done, len(instances))
    chance = torch.tensor([_chance(x) for x in instances], dtype=torch.float64)
    values = {site: torch.cat(pieces) for site, pieces in parts.items()}
    provenance = result_provenance(
        model, "interp.heads.needle.copy_paste", prompts_of(instances), authors=authors
    )
    return CopyPaste(values, torch.cat(right), chance, tuple(instances), provenance)


def _chance(instance: Instance) -> float:
    """Return the expected score of a top key drawn uniformly from the visible tokens."""
    if instance.at_once:
        # share of draws without replacement that hold no source of a token
        keys, drawn = instance.length, len(instance.sources)
        none = [
            math.exp(_log_choices(keys - held, drawn) - _log_choices(keys, drawn))
            if drawn <= keys - held
            else 0.0
            for held in map(instance.holders, instance.answer)
        ]
        return float(1 - np.mean(none))
    missed = dict.fromkeys(instance.answer, 1.0)
    for step, token in enumerate(instance.answer):
        missed[token] *= 1 - instance.holders(token) / (instance.length + step)
    return sum(1 - m for m in missed.values()) / len(missed)


def _log_choices(n: int, k: int) -> float:
    """Return the logarithm of the number of ways to choose k of n."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def instance_batches(
    instances: Sequence[Instance], tokens: int = TOKENS_AT_ONCE
) -> Iterator[list[Instance]]:
    """Batch neighbouring prompts of one length, without padding or reordering."""
    batch: list[Instance] = []
    for x in instances:
        same = batch and _shape(batch[0]) == _shape(x)
        if batch and (not same or (len(batch) + 1) * x.length > tokens):
            yield batch
            batch = []
        batch.append(x)
    if batch:
        yield batch


def _shape(x: Instance) -> tuple[int, int, int, bool]:
    return x.length, len(x.answer), len(x.sources), x.at_once


def forced_prompts(batch: Sequence[Instance]) -> tuple[Prompts, Int[Tensor, " step"]]:
    """Return the prompts of a batch with their answers, and the rows that predict these."""
    prompts = Prompts(tuple(x.prompt + x.given for x in batch), "needles")
    first = batch[0].length - 1
    return prompts, torch.arange(first, first + len(batch[0].given) + 1)


def source_mask(batch: Sequence[Instance], length: int) -> Bool[Tensor, "trial pos"]:
    """Return True at the sources of the answer of each prompt."""
    mask = torch.zeros(len(batch), length, dtype=torch.bool)
    for row, x in zip(mask, batch, strict=True):
        row[list(x.sources)] = True
    return mask


def _forced(
    model: Model, batch: Sequence[Instance]
) -> tuple[dict[Site, Float[Tensor, "trial head"]], Float[Tensor, " trial"]]:
    prompts, rows = forced_prompts(batch)
    steps, at_once = len(rows), batch[0].at_once
    number = len(batch[0].sources)
    tops: dict[Site, Int[Tensor, "trial head step"]] = {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        model.require_finite(call, site)
        pattern = call.pattern(rows.to(call.z.device))
        # an answer that is asked for at once has as many top keys as sources
        top = pattern[:, :, 0].topk(number).indices if at_once else pattern.argmax(-1)
        tops[site] = top.cpu()

    logits = model.read(prompts, visit, last=steps)[:, -steps:].cpu()
    answers = torch.tensor([x.answer for x in batch])
    ids = torch.tensor([x.context for x in batch])
    if at_once:
        best = logits[:, 0].topk(answers.shape[1]).indices
        right = (answers[:, :, None] == best[:, None]).any(-1).double().mean(-1)
        return {site: _found_at_once(top, ids, answers, batch) for site, top in tops.items()}, right
    right = (logits.argmax(-1) == answers).double().mean(-1)
    hits = {site: _copied(top, ids, answers, batch) for site, top in tops.items()}
    return {site: _share(hit, answers) for site, hit in hits.items()}, right


def _found_at_once(
    top: Int[Tensor, "trial head key"],
    ids: Int[Tensor, "trial pos"],
    answers: Int[Tensor, "trial token"],
    batch: Sequence[Instance],
) -> Float[Tensor, "trial head"]:
    """Return the share of each answer's tokens of which a source is among the top keys."""
    held = _held_by_sources(top, ids, batch)
    return (held[..., None] == answers[:, None, None]).any(2).double().mean(-1)


def _copied(
    top: Int[Tensor, "trial head step"],
    ids: Int[Tensor, "trial pos"],
    written: Int[Tensor, "trial step"],
    batch: Sequence[Instance],
) -> Bool[Tensor, "trial head step"]:
    """Return True where the top key is in the needle and holds the token written."""
    return _held_by_sources(top, ids, batch) == written[:, None]


def _held_by_sources(
    top: Int[Tensor, "trial head key"], ids: Int[Tensor, "trial pos"], batch: Sequence[Instance]
) -> Int[Tensor, "trial head key"]:
    """Return the token at each top key; -1 where the key is no source of the answer."""
    size = ids.shape[1]
    known = ids.where(source_mask(batch, size), -1)
    known = torch.nn.functional.pad(known, (0, 1), value=-1)  # what follows the context
    return known[:, None].expand(-1, top.shape[1], -1).gather(-1, top.clamp(max=size))


def _share(
    hit: Bool[Tensor, "trial head step"], answers: Int[Tensor, "trial step"]
) -> Float[Tensor, "trial head"]:
    """Return the share of each answer's distinct tokens that were hit at least once."""
    same = answers[:, :, None] == answers[:, None, :]  # trial step token
    first = ~(same & torch.ones_like(same[0]).tril(-1)).any(-1)  # no earlier step has this token
    got = (hit[:, :, :, None] & same[:, None]).any(2) & first[:, None]
    return got.sum(-1).double() / first.sum(-1)[:, None]


def _decoded(
    model: Model, instance: Instance
) -> tuple[dict[Site, Float[Tensor, "trial head"]], Float[Tensor, " trial"]]:
    """Score one instance as the published code does; `right` is the recall of answer tokens."""
    written, tops = decode(model, instance)
    context = torch.tensor([instance.context])
    shares = {}
    for site, top in tops.items():
        hit = _copied(top[None], context, written[None], [instance])
        shares[site] = hit.sum(-1).double() / len(instance.answer)
    left, recalled = written.tolist(), 0
    for token in instance.answer:
        if token in left:
            left.remove(token)
            recalled += 1
    return shares, torch.tensor([recalled / len(instance.answer)], dtype=torch.float64)


def decode(
    model: Model, instance: Instance
) -> tuple[Int[Tensor, " step"], dict[Site, Int[Tensor, "head step"]]]:
    """Generate greedily and return the tokens and every head's top key at each token."""
    if not generates(model.module):
        raise OptionError(f"{model.name} has no language-model head to generate with; omit authors")
    tops: dict[Site, list[Tensor]] = {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        last = torch.tensor([call.z.shape[2] - 1], device=call.z.device)
        before = tops.setdefault(site, [])
        # a sliding cache holds only the last keys, so positions are offset by the dropped ones
        dropped = max(0, instance.length + len(before) - call.v.shape[2])
        before.append(call.pattern(last)[0, :, 0].argmax(-1).cpu() + dropped)

    inputs = model.inputs(Prompts((instance.prompt,)))
    if "attention_mask" in takes(model.module):
        # otherwise generate treats every id equal to the padding id as padding, even a BOS of id 0
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    pad = getattr(model.config, "pad_token_id", None)

    def written_by(given: dict[str, Any]) -> Tensor:
        return model.module.generate(  # type: ignore[operator]
            **given,
            max_new_tokens=instance.steps,
            do_sample=False,
            pad_token_id=0 if pad is None else pad,
        )

    with inference(model.module):
        ids = model.read(inputs, visit, run=written_by)
    written = ids[0, instance.length :].cpu()
    return written, {site: torch.stack(x[: len(written)], -1) for site, x in tops.items()}
