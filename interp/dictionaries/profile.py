"""Features, heads and Lorsa heads scored by the same detectors, beside their nulls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError
from interp.core.presenter import present
from interp.core.prompts import Prompts, bos_id
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.dictionaries.controls import random_directions
from interp.dictionaries.dictionary import Dictionary
from interp.dictionaries.unit_maps import FeatureUnits, HeadUnits, MappedUnits, unit_call
from interp.heads.declaration import BoundAnalysis, bound
from interp.heads.map_rows import map_statistics
from interp.model.content import result_provenance
from interp.model.hooks.kernel_call import LookedAt, as_attention
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.model.model import Model

Array = np.ndarray
DETECTORS = ("previous_token", "current_token", "duplicate_token", "induction")
MOST = 256  # features that are scored unless they are named


def profile_rows(
    units: str,
    labels: Sequence[str],
    detectors: Sequence[str],
    mass: Float[Array, "unit detector prompt"],
    chance: Float[Array, "unit detector prompt"],
    shuffled: Float[Array, "unit detector prompt"],
    control: Float[Array, "control detector"],
    head: Sequence[tuple[int, float]],
    clusters: tuple[str, ...] | None,
    made: Mapping[str, Any],
) -> ResultRows:
    """Return a row per unit and detector; see `profile_units` for columns and facts."""
    (mean, n), rows = mean_known(mass), mass.reshape(-1, mass.shape[2])
    null, p = mean_known(shuffled)[0], np.full(mean.shape, np.nan)
    if len(control):
        typical = mean_known(control.T[None])[0][0]
        null = np.where(np.isnan(null), typical[None], null)
        above = (control[None] >= mean[:, None] - 1e-12).sum(1)
        p = np.where(np.isnan(mean), np.nan, (1 + above) / (1 + (~np.isnan(control)).sum(0)))
    columns: dict[str, Any] = {
        "unit_name": np.repeat(labels, len(detectors)),
        "metric": np.tile(detectors, len(labels)),
        "score": mean.ravel(),
        "sem": known_errors(rows, clusters),
        "null": null.ravel(),
        "chance": mean_known(chance)[0].ravel(),
        "p": p.ravel(),
        "n": n.ravel(),
    }
    if head:
        columns["main_head"] = np.repeat([h for h, _ in head], len(detectors))
        columns["head_share"] = np.repeat([s for _, s in head], len(detectors))
    facts = {
        "unit": "attention mass",
        "units_are": units,
        "labels": tuple(labels),
        "detectors": tuple(detectors),
        "control": control,
    }
    arrays = {"uniform": chance.reshape(rows.shape), "shuffled": shuffled.reshape(rows.shape)}
    return ResultRows(
        "UnitProfile", columns, ("unit_name",), made, facts, rows, arrays=arrays, clusters=clusters
    )


def mean_known(x: Float[Array, "a b prompt"]) -> tuple[Array, Array]:
    """Return the mean over prompts with a value, and their number; NaN without any."""
    known = ~np.isnan(x)
    n = known.sum(-1)
    total = np.where(known, x, 0.0).sum(-1)
    return np.divide(total, n, out=np.full(n.shape, np.nan), where=n > 0), n


def known_errors(
    rows: Float[Array, "row prompt"], clusters: Sequence[str] | None
) -> Float[Array, " row"]:
    """Return the standard error of each row over the prompts that have a value."""
    errors = []
    for row in rows:
        known = ~np.isnan(row)
        labels = (
            None if clusters is None else [c for c, k in zip(clusters, known, strict=True) if k]
        )
        one = standard_error(row[known][None], labels) if known.sum() > 1 else [np.nan]
        errors.append(float(one[0]))
    return np.array(errors)


def reduce_units(
    model: Model,
    site: Site,
    units: MappedUnits,
    bounds: Sequence[BoundAnalysis],
    prompts: Prompts,
    batch_size: int,
) -> tuple[Float[Array, "unit detector prompt"], Float[Array, "unit detector prompt"]]:
    """Return mass on targets, and that of uniform attention, per unit, detector and prompt."""
    masses, chances = [], []
    reads_segments = any(b.analysis.reads_segments for b in bounds)

    def visit(here: Site, call: Call, real: Tensor) -> None:
        if (here.stack, here.layer) != (site.stack, site.layer):
            return
        model.require_finite(call, here)
        rows, active = units.maps(call, real)
        unit_attention = unit_call(call, rows, len(units.labels))
        named = looked_at.segments(here, call) if reads_segments else None
        tokens = looked_at.tokens(here, call)
        attention = as_attention(unit_attention, real, tokens, segments=named)
        asked = [r for b in bounds for r in b.reductions()]
        values = map_statistics(unit_attention, attention, asked)
        keys = unit_attention.visible() & real[:, None, None, :]
        seen = keys.sum(-1).clamp_min(1)
        means = []
        for b in bounds:
            mass, targets = (values[r.name] for r in b.reductions())
            counted = (active & (targets > 0) & real[:, None]).double()
            n = counted.sum(-1)
            for x in (mass.double(), (targets.double() / seen).expand_as(counted)):
                mean = (x * counted).sum(-1) / n.clamp_min(1)
                means.append(torch.where(n > 0, mean, torch.nan).cpu())
        both = torch.stack(means, -1).permute(1, 2, 0)  # unit, detector and kind, prompt
        masses.append(both[:, ::2].numpy())
        chances.append(both[:, 1::2].numpy())

    for batch in model.batches(prompts, batch_size):
        looked_at = LookedAt(model, batch)
        model.read(batch, visit, last=1)
    return np.concatenate(masses, -1), np.concatenate(chances, -1)


def bound_detectors(metrics: Iterable[Any]) -> list[BoundAnalysis]:
    """Return detectors by name or declaration."""
    bounds = [bound(m) for m in metrics]
    wrong = [b.label for b in bounds if b.analysis.kind != "detector"]
    if wrong or not bounds:
        raise OptionError(
            f"{', '.join(wrong) or 'nothing'}: units are scored by detectors, such as "
            f"{', '.join(DETECTORS)}"
        )
    return bounds


def profile_units(
    model: Model,
    site: Site,
    units: MappedUnits,
    prompts: Prompts,
    metrics: Iterable[Any] = DETECTORS,
    *,
    control: MappedUnits | None = None,
    head: tuple[tuple[int, float], ...] = (),
    batch_size: int = 8,
    seed: int = 0,
    made_by: str = "interp.dictionaries.profile_units",
) -> ResultRows:
    """Score units of a layer by detectors, on prompts and on the same with shuffled tokens."""
    prompts.check(model)
    bounds = bound_detectors(metrics)
    mass, chance = reduce_units(model, site, units, bounds, prompts, batch_size)
    first = bos_id(model)
    keep = first is not None and all(ids[0] == first for ids in prompts.ids)
    reading = [i for i, b in enumerate(bounds) if b.analysis.reads_tokens]
    shuffled = np.full(mass.shape, np.nan)
    if reading:
        other = prompts.shuffled(seed, keep)
        some = [bounds[i] for i in reading]
        shuffled[:, reading] = reduce_units(model, site, units, some, other, batch_size)[0]
    typical = np.zeros((0, len(bounds)))
    if control is not None:
        typical = mean_known(reduce_units(model, site, control, bounds, prompts, batch_size)[0])[0]
    provenance = result_provenance(
        model,
        made_by,
        prompts,
        seed=seed,
        layer=site.layer,
        units=units.kind,
        detectors=[b.label for b in bounds],
    )
    return profile_rows(
        units.kind,
        units.labels,
        [b.label for b in bounds],
        mass,
        chance,
        shuffled,
        typical,
        head,
        prompts.clusters,
        provenance,
    )


@takes_model
def score_features(
    model: Model,
    dictionary: Dictionary,
    prompts: Any,
    metrics: Iterable[Any] = DETECTORS,
    *,
    features: Sequence[int] | None = None,
    batch_size: int = 8,
    seed: int = 0,
    other_weights: bool = False,
) -> ResultRows:
    """Score features of a dictionary of attention outputs by the detectors of heads.

    Args:
        model: a loaded model, or anything that `interp.load` accepts.
        dictionary: a dictionary of z or of the attention output.
        prompts: texts, ids or `Prompts`, not those that it was trained on.
        metrics: detectors by name or declaration.
        features: the features; by default the 256 that have a code at most positions, without those
            that have none.
        batch_size: prompts per forward pass.
        seed: seed of shuffling and of the control's directions.
        other_weights: accept a model with other weights than the dictionary was trained on.

    Raises:
        OptionError: the dictionary reads something else, or a metric is not a detector.
        DictionaryMismatch: the dictionary belongs to another model, layer or width.

    Unit: attention mass: the absolute share of a feature's attribution on the targets.

    Cost: Three forward passes of the prompts, and a map per feature and prompt.

    Null: shuffled tokens, and as many random directions with as many codes.

    Not for: what a feature does; ablate it with `ablate_features`.

    Reference: Kissane et al. 2024 (arXiv 2406.17759) for direct feature attribution; detectors on
    it are this project's.
    """
    site = dictionary.site_in(model, other_weights=other_weights)
    tokenized = Prompts.of(prompts, model)
    number, positions = code_counts(model, dictionary, tokenized, batch_size)
    if features is None:
        alive = np.argsort(-number, kind="stable")[:MOST]
        features = sorted(int(f) for f in alive if number[f] > 0)
        if not features:
            raise OptionError("no feature has a code on these prompts; give other prompts")
    units = FeatureUnits.of(model, dictionary, features, site)
    units.require_same(model, next(model.batches(tokenized, batch_size)), site)
    k = max(1, min(dictionary.d_sae, round(float(number.sum()) / positions)))
    other = random_directions(dictionary, k, torch.Generator().manual_seed(seed))
    control = FeatureUnits.of(model, other, features, site)
    head: tuple[tuple[int, float], ...] = ()
    if dictionary.site == "z":
        share = dictionary.to(torch.float64)
        shares = share.head_share()[list(features)] if share.n_heads else None
        if shares is not None:
            best = shares.max(1)
            head = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    return profile_units(
        model,
        site,
        units,
        tokenized,
        metrics,
        control=control,
        head=head,
        batch_size=batch_size,
        seed=seed,
        made_by="interp.dictionaries.score_features",
    )


@takes_model
def profile_heads(
    model: Model,
    prompts: Any,
    layer: int,
    metrics: Iterable[Any] = DETECTORS,
    *,
    stack: str | None = None,
    batch_size: int = 8,
    seed: int = 0,
) -> ResultRows:
    """Score the heads of a layer exactly as features are scored, for comparison with them.

    Args:
        model: a loaded model, or anything that `interp.load` accepts.
        prompts: texts, ids or `Prompts`.
        layer: the layer.
        metrics: detectors by name or declaration.
        stack: attention stack, where a layer number is not enough.
        batch_size: prompts per forward pass.
        seed: seed of the shuffling.

    Raises:
        OptionError: there is no such layer, or a metric is not a detector.
    """
    site = model.site(layer, stack)
    return profile_units(
        model,
        site,
        HeadUnits(site),
        Prompts.of(prompts, model),
        metrics,
        batch_size=batch_size,
        seed=seed,
        made_by="interp.dictionaries.profile_heads",
    )


def code_counts(
    model: Model, dictionary: Dictionary, prompts: Prompts, batch_size: int
) -> tuple[Float[Array, " feature"], int]:
    """Return the number of positions at which each feature has a code, and of all positions."""
    from interp.dictionaries.activations import activation_rows

    site = dictionary.site_in(model, other_weights=True)
    number, positions = np.zeros(dictionary.d_sae), 0
    for batch in model.batches(prompts, batch_size):
        x, _ = activation_rows(model, batch, site, (dictionary.site, dictionary.site))
        number += (dictionary.encode(x) != 0).sum(0).double().numpy()
        positions += len(x)
    return number, positions


def unit_profile_summary(found: ResultRows) -> str:
    """Return the units with the highest mass on targets."""
    lines = [
        f"{len(found.labels)} units ({found.units_are}), {len(found.detectors)} detectors, "
        f"{found.per_prompt.shape[1]} prompts; highest mass on targets:"
    ]
    for x in found.top(min(8, len(found))).to_pandas().to_dict("records"):
        within = "one prompt" if x["n"] < 2 else f"[{x['low']:.3f}, {x['high']:.3f}]"
        lines.append(
            f"  {x['unit_name']} {x['metric']}: {x['score']:.3f} {within}, "
            f"null {x['null']:.3f}, chance {x['chance']:.3f}"
            + (f", p {x['p']:.3g}" if x["p"] == x["p"] else "")
            + (f", head {x['main_head']} ({x['head_share']:.0%})" if "main_head" in x else "")
        )
    return "\n".join(lines)


present("UnitProfile", summary=unit_profile_summary)
