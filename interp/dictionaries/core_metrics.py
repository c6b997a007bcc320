"""Core metrics of a dictionary on held-out prompts, beside its controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.protocols import Progress, silent
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.dictionaries.activations import FIRST, counted_rows
from interp.dictionaries.controls import Reconstruction, control_reconstructions
from interp.dictionaries.dictionary import Dictionary
from interp.model.content import result_provenance
from interp.model.layer_tensors import run_at
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.model import Model

Array = np.ndarray
METRICS = {
    "loss_recovered": "share of the rise of the loss under zero ablation",
    "loss_recovered_mean": "share of the rise of the loss under mean ablation",
    "kl_score": "share of the divergence under zero ablation",
    "explained_variance": "share of the variance",
    "l0": "codes per position",
    "dead_share": "share of the features",
    "reconstruction_bias": "ratio of squared norm to product with the input",
}


@takes_model
def score_dictionary(
    model: Model,
    dictionary: Dictionary | ResultRows,
    prompts: Any,
    *,
    untrained: Dictionary | None = None,
    controls: bool = True,
    first: int = FIRST,
    batch_size: int = 8,
    seed: int = 0,
    other_weights: bool = False,
    progress: Progress | None = None,
) -> ResultRows:
    """Measure a dictionary on held-out prompts: loss, divergence, variance, codes, dead features.

    The reconstruction replaces the activations at all positions but the first, and the rest of the
    model runs on it.

    Args:
        model: a loaded model, or anything that `interp.load` accepts.
        dictionary: the dictionary, or the result of its training.
        prompts: texts, ids or `Prompts` that it was not trained on.
        untrained: the dictionary before training, as a control; taken from the training's result.
        controls: whether to measure controls; see `interp.dictionaries.controls.CONTROLS`.
        first: positions at the beginning of each prompt that stay as they are and do not count.
        batch_size: prompts per forward pass.
        seed: seed of the controls.
        other_weights: accept a model with other weights than the dictionary was trained on.
        progress: see `Progress`.

    Returns:
        One row per dictionary and metric: dictionary ("trained" or the name of a control), metric,
        score, sem, null (the score of the untrained dictionary, or without one of random
        directions), n and unit. A score is a ratio of two means over positions; `per_prompt` is
        linearised, so that its mean is the score and its standard error that of the ratio.
        `dead_share` has none, since it is a count over all positions, which falls with their
        number. Facts: positions, their number; unchanged_loss, zero_loss and mean_loss, nats per
        token of the model itself, with the reconstructed place replaced by zeros, and by its mean
        over all positions.

    Raises:
        DictionaryMismatch: the dictionary belongs to another model, layer or width.
        OptionError: zero ablation does not change the loss, or there are fewer than two prompts.

    Unit: loss_recovered is (loss with zeros - loss with the reconstruction) / (loss with zeros -
        loss), over the mean for loss_recovered_mean; kl_score is 1 - KL / KL with zeros;
        explained_variance is 1 - E|x - y|² / E|x - E x|², in float64.

    Cost: Three forward passes of the prompts, and one per control.

    Null: the untrained dictionary, a shuffled decoder, shuffled codes and random directions with
        as many codes.

    Not for: showing that features are interpretable or used one by one; see `score_features` and
    `ablate_features`.

    Reference: Karvonen et al. 2025, "SAEBench" (arXiv 2503.09532), with explained variance by its
    definition.
    """
    if isinstance(dictionary, ResultRows):
        untrained = dictionary.untrained if untrained is None else untrained
        trained: Dictionary = dictionary.dictionary
    else:
        trained = dictionary
    site = trained.site_in(model, other_weights=other_weights)
    tokenized = Prompts.of(prompts, model)
    if len(tokenized) < 2 or min(map(len, tokenized.ids)) <= first:
        raise OptionError(
            f"{len(tokenized)} prompts; give at least 2, each longer than the {first} positions "
            "that are left out"
        )
    run = _Measured(model, site, trained, tokenized, first, batch_size)
    steps = 5 if controls else 2
    progress = progress or silent
    progress("dictionary", 0, steps)
    run.baselines()
    progress("dictionary", 1, steps)
    measures = {"trained": run.of(Reconstruction(trained))}
    progress("dictionary", 2, steps)
    if controls:
        codes = float(measures["trained"]["codes"].sum() / run.rows.sum())
        for name, each in control_reconstructions(trained, untrained, codes, seed).items():
            measures[name] = run.of(each)
    progress("dictionary", steps, steps)
    return run.result(
        measures,
        result_provenance(
            model,
            "interp.dictionaries.score_dictionary",
            tokenized,
            first=first,
            seed=seed,
            dictionary=repr(trained),
        ),
    )


class _Measured:
    """Sums per prompt under the model itself, ablations and reconstructions."""

    def __init__(
        self,
        model: Model,
        site: Site,
        dictionary: Dictionary,
        prompts: Prompts,
        first: int,
        batch_size: int,
    ) -> None:
        self.model, self.site, self.dictionary, self.first = model, site, dictionary, first
        self.prompts, self.batches = prompts, list(model.batches(prompts, batch_size))

    def baselines(self) -> None:
        """Run the model as it is, and with zeros and the mean at the reconstructed place."""
        d = self.dictionary
        self.x: list[Tensor] = []
        self.y: list[Tensor] = []
        self.logits: list[Tensor] = []
        self.kept: list[Tensor] = []
        losses = []
        for batch in self.batches:
            seen: dict[str, Tensor] = {}

            def keeper(name: str, seen: dict[str, Tensor] = seen):
                def keep(x: Tensor) -> None:
                    seen[name] = x.clone()

                return keep

            logits, real = run_at(
                self.model, batch, self.site, {n: keeper(n) for n in {d.site, d.site_out}}
            )
            self.kept.append(counted_rows(real, self.first))
            self.x.append(seen[d.site])
            self.y.append(seen[d.site_out])
            self.logits.append(logits.log_softmax(-1))
            losses.append(self._loss(batch, self.logits[-1]))
        self.clean = np.concatenate(losses)
        self.rows = self._sums([k.double() for k in self.kept])
        self.scored = np.array([len(ids) - self.first for ids in self.prompts.ids], float)
        total = sum(
            (y[k].double().sum(0) for y, k in zip(self.y, self.kept, strict=True)),
            torch.zeros(d.d_out, dtype=torch.float64, device=self.y[0].device),
        )
        self.mean = total / self.rows.sum()
        variance = [
            (y.double() - self.mean).square().sum(-1) * k
            for y, k in zip(self.y, self.kept, strict=True)
        ]
        self.variance = self._sums(variance)
        self.zero, self.zero_kl = self._replaced([torch.zeros_like(y) for y in self.y])
        self.by_mean, _ = self._replaced([self.mean.to(y).expand_as(y) for y in self.y])

    def of(self, made: Reconstruction) -> dict[str, Array]:
        """Return sums per prompt under a reconstruction."""
        new, errors, codes, size, product = [], [], [], [], []
        alive = torch.zeros(self.dictionary.d_sae, dtype=torch.bool)
        for x, y, counted in zip(self.x, self.y, self.kept, strict=True):
            rows, code = made(x[counted].float().cpu())
            alive |= (code != 0).any(0)
            whole = y.clone()
            whole[counted] = rows.to(y)
            new.append(whole)
            exact, real = whole.double(), y.double()
            errors.append((exact - real).square().sum(-1) * counted)
            size.append(exact.square().sum(-1) * counted)
            product.append((exact * real).sum(-1) * counted)
            number = torch.zeros(counted.shape, dtype=torch.float64)
            number[counted.cpu()] = (code != 0).sum(1).double()
            codes.append(number)
        loss, kl = self._replaced(new)
        return {
            "loss": loss,
            "kl": kl,
            "error": self._sums(errors),
            "codes": self._sums(codes),
            "size": self._sums(size),
            "product": self._sums(product),
            "dead": np.array(1 - float(alive.double().mean())),
        }

    def _replaced(self, new: list[Tensor]) -> tuple[Array, Array]:
        """Return summed loss and divergence per prompt with other values at the place."""
        losses, kls = [], []
        for batch, values, before, counted, y in zip(
            self.batches, new, self.logits, self.kept, self.y, strict=True
        ):
            whole = torch.where(counted[..., None], values, y)
            logits, _ = run_at(
                self.model, batch, self.site, {self.dictionary.site_out: lambda _, w=whole: w}
            )
            after = logits.log_softmax(-1)
            losses.append(self._loss(batch, after))
            kl = (before.exp() * (before - after)).double().sum(-1) * counted
            kls.append(kl.sum(1).cpu().numpy())
        return np.concatenate(losses), np.concatenate(kls)

    def _loss(self, batch: Prompts, logits: Tensor) -> Array:
        """Return the summed loss per prompt of the tokens after the first counted position."""
        ids, real = batch.padded()
        counted = counted_rows(real, self.first).to(logits.device)
        nats = -logits[:, :-1].gather(-1, ids[:, 1:, None].to(logits.device))[..., 0].double()
        return (nats * (counted[:, :-1] & real[:, 1:].to(logits.device))).sum(1).cpu().numpy()

    def _sums(self, parts: list[Tensor]) -> Array:
        return np.concatenate([p.sum(1).cpu().numpy() for p in parts])

    def result(
        self, found: Mapping[str, Mapping[str, Array]], made: Mapping[str, Any]
    ) -> ResultRows:
        rise, rise_mean = self.zero - self.clean, self.by_mean - self.clean
        if abs(rise.sum()) < 1e-9 or self.variance.sum() <= 0:
            raise OptionError(
                f"{self.model.name}: zeros at {self.dictionary.site_out} of {self.site.name} do "
                "not change the loss, so no share of it can be recovered; choose another layer"
            )
        rows: list[tuple[str, str, float, Array]] = []
        for kind, x in found.items():
            ratios = {
                "loss_recovered": (self.zero - x["loss"], rise),
                "loss_recovered_mean": (self.by_mean - x["loss"], rise_mean),
                "kl_score": (self.zero_kl - x["kl"], self.zero_kl),
                "explained_variance": (self.variance - x["error"], self.variance),
                "l0": (x["codes"], self.rows),
                "reconstruction_bias": (x["size"], x["product"]),
            }
            for metric in METRICS:
                if metric == "dead_share":
                    nothing = np.full(len(self.rows), np.nan)
                    rows.append((kind, metric, float(x["dead"]), nothing))
                else:
                    rows.append((kind, metric, *linearised(*ratios[metric])))
        tokens = float((self.scored - 1).sum())
        null = "untrained" if "untrained" in found else "random directions"
        facts = {
            "unchanged_loss": float(self.clean.sum() / tokens),
            "zero_loss": float(self.zero.sum() / tokens),
            "mean_loss": float(self.by_mean.sum() / tokens),
            "positions": int(self.rows.sum()),
        }
        return ResultRows(
            "DictionaryScores",
            ratio_columns("dictionary", rows, null, METRICS, self.prompts.clusters),
            ("dictionary",),
            dict(made),
            facts,
            np.stack([r[3] for r in rows]),
            clusters=self.prompts.clusters,
        )


def ratio_columns(
    unit: str,
    rows: Sequence[tuple[str, str, float, Array]],
    null: str,
    units: Mapping[str, str],
    clusters: Sequence[str] | None,
) -> dict[str, Any]:
    """Get the columns of ratios, of which each row names what it is of, metric, score, values."""
    of = {(r[0], r[1]): r[2] for r in rows}
    values = np.stack([r[3] for r in rows])
    return {
        unit: [r[0] for r in rows],
        "metric": [r[1] for r in rows],
        "score": [r[2] for r in rows],
        "sem": standard_error(values, clusters),
        "null": [of.get((null, r[1]), np.nan) for r in rows],
        "n": values.shape[1],
        "unit": [units[r[1]] for r in rows],
    }


def linearised(
    part: Float[Array, " prompt"], whole: Float[Array, " prompt"]
) -> tuple[float, Float[Array, " prompt"]]:
    """Return a ratio of sums, and values per prompt whose mean it is (delta method).

    NaN where the whole is 0, such as the reconstruction's product with the input if it is zero.
    """
    if whole.sum() == 0:
        return np.nan, np.full(len(whole), np.nan)
    ratio = float(part.sum() / whole.sum())
    return ratio, ratio + (part - ratio * whole) / whole.mean()


def explained_variance(x: Float[Tensor, "row d"], y: Float[Tensor, "row d"]) -> float:
    """Compute 1 - E|x - y|² / (E|x|² - |E x|²) in float64.

    The mean of x is per entry; a published implementation takes it of x² instead, which gives other
    values for data that are not centred.
    """
    x, y = x.double(), y.double()
    variance = x.square().sum(1).mean() - x.mean(0).square().sum()
    return 1 - float((x - y).square().sum(1).mean() / variance)


def dictionary_scores_summary(found: ResultRows) -> str:
    """Return the losses, and each metric of the dictionary beside its controls."""
    frame = found.to_pandas()
    lines = [
        f"Dictionary on {found.per_prompt.shape[1]} prompts, {found.positions} positions: loss "
        f"{found.unchanged_loss:.4g} nats per token, {found.zero_loss:.4g} with zeros and "
        f"{found.mean_loss:.4g} with the mean in place of the activations"
    ]
    for metric, rows in frame.groupby("metric", sort=False):
        sentences = []
        for x in rows.to_dict("records"):
            there = x["dictionary"] == "trained" and x["low"] == x["low"]
            span = f" [{x['low']:.3f}, {x['high']:.3f}]" if there else ""
            sentences.append(f"{x['dictionary']} {x['score']:.3f}{span}")
        lines.append(f"  {metric}: {'; '.join(sentences)}")
    return "\n".join(lines)


present("DictionaryScores", summary=dictionary_scores_summary)
