"""Features of heads per item, for probes: outputs z, values of metrics, recorded activations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from torch import Tensor

    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.model.model import Model
    from interp.model.recorded.reading import RecordedActivations

CHUNKS = 10


@dataclass(frozen=True, eq=False)
class HeadFeatures:
    """Numbers per item, each of which belongs to one head.

    Args:
        x: the features, in float64.
        places: stack, layer and head of every feature.
        kind: how they were made, with all options; a probe is applied to the same kind only.
        items: identity of the prompt of every item, by which repeated prompts are found.
        model: name and hash of the model.
    """

    x: Float[np.ndarray, "item feature"]
    places: tuple[tuple[str, int, int], ...]
    kind: str
    items: tuple[str, ...]
    model: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = (len(self.items), len(self.places))
        if self.x.shape != shape:
            raise OptionError(f"features of shape {self.x.shape}; {shape} is expected")
        wrong = np.flatnonzero(~np.isfinite(self.x).all(1))
        if len(wrong):
            raise PromptError(
                f"{len(wrong)} of {len(self.x)} items have no value for some feature ({self.kind}),"
                f" the first is item {wrong[0]}; leave them out"
            )

    def __len__(self) -> int:
        return len(self.items)

    @property
    def heads(self) -> tuple[tuple[str, int, int], ...]:
        """The heads that have features, in order."""
        return tuple(dict.fromkeys(self.places))

    def of_head(self) -> Int[np.ndarray, " feature"]:
        """Return the index in `heads` of the head of every feature."""
        number = {place: i for i, place in enumerate(self.heads)}
        return np.array([number[place] for place in self.places])

    def rows(self, which: Sequence[int] | np.ndarray) -> HeadFeatures:
        """Return some items."""
        items = tuple(self.items[i] for i in which)
        return HeadFeatures(self.x[which], self.places, self.kind, items, self.model)

    def only(self, heads: Sequence[tuple[int, int]]) -> HeadFeatures:
        """Return the features of some heads, given as (layer, head).

        Raises:
            OptionError: none of them has features.
        """
        chosen = [
            i for i, (_, layer, head) in enumerate(self.places) if (layer, head) in set(heads)
        ]
        if not chosen:
            raise OptionError(f"no features of the heads {list(heads)}; see `features.heads`")
        places, kind = tuple(self.places[i] for i in chosen), f"{self.kind}, chosen heads"
        return HeadFeatures(self.x[:, chosen], places, kind, self.items, self.model)


def about_model(model: Model) -> dict[str, Any]:
    """Return what a probe is checked against: name and hash of the weights."""
    return {"name": model.name, "hash": model.content_hash}


@takes_model
def output_features(
    model: Model, prompts: Any, position: int | str = "last", *, batch_size: int = 16
) -> HeadFeatures:
    """Read each head's output z at one position of each prompt, or its mean over positions.

    Args:
        model: a loaded model, or anything that `interp.load` accepts.
        prompts: texts, ids or `Prompts`.
        position: "last", "mean", or a position that every prompt has; negative from the end.
        batch_size: prompts per forward pass.

    Raises:
        OptionError: the position is not known.
        PromptError: a prompt does not fit the model, or has no such position.

    Unit: of the activations.

    Cost: One forward pass of the prompts.

    Null: Shuffled labels, by `train_probe`.

    Not for: labels that the last token itself tells; every head that copies it then predicts them.

    Reference: this project.
    """
    tokenized = Prompts.of(prompts, model)
    wanted = -1 if position == "last" else position
    if not isinstance(wanted, int) and wanted != "mean":
        raise OptionError(f"position {position!r} is not known; use 'last', 'mean' or a number")

    def read(z: Tensor) -> Any:
        if wanted == "mean":
            return z.mean(1)
        if not -z.shape[1] <= wanted < z.shape[1]:
            raise PromptError(f"a prompt of {z.shape[1]} tokens has no position {wanted}")
        return z[:, wanted]

    x, places = outputs_by_prompt(model, tokenized, read, batch_size)
    return HeadFeatures(x, places, f"z at {position}", tokenized.prompt_ids, about_model(model))


@takes_model
def chunk_features(
    model: Model, prompts: Any, chunks: int = CHUNKS, *, batch_size: int = 16
) -> tuple[HeadFeatures, Int[np.ndarray, " item"]]:
    """Read the mean output z of each head over the beginning of each prompt, for sufficiency.

    The items of a prompt are its first tenth, its first two tenths and so on. A probe of them
    predicts whether what was read so far suffices for an answer; all items of a prompt belong to
    one document.

    Args:
        model: a loaded model, or anything that `interp.load` accepts.
        prompts: texts, ids or `Prompts`.
        chunks: parts of a prompt.
        batch_size: prompts per forward pass.

    Returns:
        The features of all items, prompt by prompt, and the prompt of each item.

    Raises:
        PromptError: a prompt has fewer tokens than chunks.

    Unit: of the activations.

    Cost: One forward pass of the prompts.

    Null: Shuffled labels, by `train_probe`; they are shuffled inside a prompt where its items
        differ.

    Not for: prompts in which the sufficient part is always at the same place; position alone then
        tells the label.

    Reference: Xie et al. 2025, "Knowing When to Stop" (arXiv 2502.01025), on inputs of the output
        projection instead of slices of its output.
    """
    tokenized = Prompts.of(prompts, model)
    if chunks < 1 or min(map(len, tokenized.ids)) < chunks:
        raise PromptError(f"{chunks} chunks need prompts of at least {max(chunks, 1)} tokens")

    def read(z: Tensor) -> Any:
        import torch

        ends = torch.tensor([len(z[0]) * (i + 1) // chunks for i in range(chunks)])
        mean = z.cumsum(1)[:, ends - 1] / ends[:, None].to(z)
        return mean.transpose(0, 1)  # chunk, head, d

    x, places = outputs_by_prompt(model, tokenized, read, batch_size, per=chunks)
    which = np.repeat(np.arange(len(tokenized)), chunks)
    ids = tuple(f"{tokenized.prompt_ids[i]} {n % chunks}" for n, i in enumerate(which))
    kind = f"mean z of the first parts of {chunks}"
    return HeadFeatures(x, places, kind, ids, about_model(model)), which


@takes_model
def metric_features(
    model: Model, prompts: Any, metrics: Any = None, *, batch_size: int = 16
) -> HeadFeatures:
    """Score every head on every prompt, as features: statistics of patterns, or any metric.

    Args:
        model: a loaded model, or anything that `interp.load` accepts.
        prompts: texts, ids or `Prompts`.
        metrics: metrics of given prompts, as for `interp.score`; entropy, first token, previous
            token and attention distance by default.
        batch_size: prompts per forward pass.

    Raises:
        OptionError: a metric has no values on prompts.
        PromptError: a metric has no value on some prompt.

    Unit: of each metric.

    Cost: One forward pass of the prompts.

    Null: Shuffled labels, by `train_probe`.

    Not for: labels that go with the length of the prompts, on which many metrics depend.

    Reference: this project.
    """
    from interp.heads.scoring import score

    tokenized = Prompts.of(prompts, model)
    usual = ["entropy", "first_token", "previous_token", "attention_distance"]
    table = score(
        model, usual if metrics is None else metrics, tokenized, null="none", batch_size=batch_size
    )
    if not table.metrics:
        raise OptionError("no metrics given; name at least one, such as entropy")
    x, places = [], []
    for metric in table.metrics:
        values = table._prompt_values.get((model.name, metric))
        sizes = {len(v) for v in values.sites.values()} if values is not None else set()
        if sizes != {len(tokenized)}:
            raise OptionError(f"{metric} has no value per given prompt; use a metric of patterns")
        assert values is not None
        for (stack, layer), scores in values.sites.items():
            x.append(scores)
            places += [(stack, layer, head) for head in range(scores.shape[1])]
    kind = f"metrics {', '.join(table.metrics)}"
    return HeadFeatures(
        np.concatenate(x, 1).astype(float),
        tuple(places),
        kind,
        tokenized.prompt_ids,
        about_model(model),
    )


def recorded_features(
    recorded: RecordedActivations | str | Path, position: int | str = "last"
) -> HeadFeatures:
    """Read z from a folder of `interp record`, at one position of each prompt or as their mean."""
    from interp.model.recorded.reading import RecordedActivations

    held = recorded if isinstance(recorded, RecordedActivations) else RecordedActivations(recorded)
    if not held.complete:
        raise OptionError(f"{held.folder} is not complete; run the same `interp record` again")
    wanted = -1 if position == "last" else position
    if not isinstance(wanted, int) and wanted != "mean":
        raise OptionError(f"position {position!r} is not known; use 'last', 'mean' or a number")
    asked = held.index.request
    rows, places = [], []
    for prompt in range(held.n_prompts):
        row = []
        for (stack, layer), heads in zip(asked["layers"], asked["heads"], strict=True):
            at = slice(None) if wanted == "mean" else wanted
            z = held.read("z", layer, prompt, at, stack=stack).double()
            z = z.mean(0) if wanted == "mean" else z
            row.append(z.flatten().numpy())
            if prompt == 0:
                places += [(stack, layer, head) for head in heads for _ in range(z.shape[1])]
        rows.append(np.concatenate(row))
    ids = Prompts(tuple(tuple(held.tokens(i).tolist()) for i in range(held.n_prompts))).prompt_ids
    about = {"name": held.provenance.get("name"), "hash": asked["model"]}
    return HeadFeatures(np.stack(rows), tuple(places), f"z at {position}", ids, about)


def outputs_by_prompt(
    model: Model, prompts: Prompts, read: Any, batch_size: int, *, per: int = 1
) -> tuple[Float[np.ndarray, "item feature"], tuple[tuple[str, int, int], ...]]:
    """Apply a function to each prompt's outputs `[head, token, d]`, without padding."""
    prompts.check(model)
    rows: dict[Site, list[np.ndarray]] = {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        model.require_finite(call, site)
        for one, mine in zip(call.z, real, strict=True):
            z = one[:, mine[-one.shape[1] :]] if site.stack != "cross" else one
            rows.setdefault(site, []).append(read(z.double().cpu()).reshape(per, -1).numpy())

    for batch in prompts.batches(batch_size):
        model.read(batch, visit, last=1)
    places = tuple(
        (s.stack, s.layer, h) for s in rows for h in range(s.n_heads) for _ in range(s.d_v)
    )
    return np.concatenate([np.concatenate(x) for x in rows.values()], 1), places
