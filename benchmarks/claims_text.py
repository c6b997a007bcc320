"""Cases of claims.py on models of texts: attribution, lenses, anchors, sources, score."""

from __future__ import annotations

from functools import cache
from typing import Any

import calibration
import numpy as np
from claims_case import Case, inside

import interp
from interp.attribution import (
    explain_difference,
    learn_head_weights,
    learned_weights,
    randomisation_check,
)
from interp.attribution.evaluation import randomisation
from interp.core.prompt_means import prompt_means
from interp.core.registry import METRICS
from interp.heads.declaration import bound
from interp.heads.score_rows import means_by_site
from interp.heads.scoring import why_not
from interp.lens import direct_logits, tuned_lens
from interp.text.chains import linked_chains, receiver_heads, thought_anchors
from interp.text.chains.receivers import receiver_rows
from interp.text.context import judge_sources

LEVEL = 0.05
NEW = (
    "entropy_share",
    "key_clusters",
    "moving_keys",
    "triangle_spans",
    "sink_key_bias",
    "cls_rest",
)


def random_model(shape: str, seed: int) -> interp.Model:
    return interp.load(calibration.module_of(shape, seed), name=shape, check=False)


def random_ids(seed: int, n: int, length: int) -> list[list[int]]:
    return np.random.default_rng(seed).integers(3, 128, (n, length)).tolist()


# --- attribution --------------------------------------------------------------------------------


def same_prompts(row: str) -> Any:
    """Two sides drawn alike; the rows of the method, or that of the target."""

    def draw(seed: int) -> Any:
        one, other = ([[x] for x in random_ids(2 * seed + k, 12, 6)] for k in (0, 1))
        found = explain_difference(
            random_model("gpt2", seed), one, "gradient_x_input", "id:7", other_prompts=other
        ).to_pandas()
        return found.loc[found["metric"] == row, "p_holm"] < LEVEL

    return draw


def permuted_attention(seed: int) -> Any:
    """Attention that has nothing to do with the text, in place of that of the model."""
    rng, kept = np.random.default_rng(seed), learned_weights.head_attention

    def made(example: Any) -> Any:
        names = [(i // 4, i % 4) for i in range(8)]
        return rng.dirichlet(np.ones(len(example)), size=8), names

    learned_weights.head_attention = made
    try:
        return learned_rate(seed)
    finally:
        learned_weights.head_attention = kept


def learned_rate(seed: int) -> Any:
    texts: Any = [[x] for x in random_ids(seed, 12, 8)]
    found = learn_head_weights(random_model("gpt2", seed), texts, "id:7", n_ablations=16, seed=seed)
    frame = found.held_out.to_pandas()
    return frame.loc[frame["weights"] == "learned", "p"] < LEVEL


def last_step(method: str) -> Any:
    """The last step of the cascade, on a model that has learned nothing."""

    def draw(seed: int) -> Any:
        texts: Any = [[x] for x in random_ids(seed, 12, 8)]
        found = randomisation_check(
            random_model("bert", seed), texts, [method], "id:7", seed=seed
        ).to_pandas()
        return found.loc[found["step"] == found["step"].max(), "p"] < LEVEL

    return draw


def randomised(seed: int) -> Any:
    """Any step, for scores that are drawn anew of each model and text."""
    texts: Any = [[x] for x in random_ids(seed, 12, 8)]
    kept, rng = randomisation._sizes, np.random.default_rng([seed, 1])
    randomisation._sizes = lambda _, example: rng.random(len(example))
    try:
        found = randomisation_check(
            random_model("bert", seed), texts, ["random_scores"], "id:7", seed=seed
        ).to_pandas()
    finally:
        randomisation._sizes = kept
    return found["p_holm"] < LEVEL


# --- lenses -------------------------------------------------------------------------------------


def random_targets(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    targets = rng.integers(3, 128, 12).tolist()
    found = direct_logits(random_model("gpt2", seed), random_ids(seed, 12, 6), targets, seed=seed)
    return found.to_pandas()["p_holm"] < LEVEL


@cache
def lens_pool() -> Any:
    model = interp.load("bundled:induction")
    ids = np.random.default_rng(0).integers(4, model.d_vocab, (260, 12)).tolist()
    return tuned_lens(model, ids, held_out=0.9)


def lens_intervals(seed: int) -> Any:
    pool = lens_pool()
    which = np.random.default_rng(seed).integers(pool.per_prompt.shape[1], size=12)
    about = pool.wide()[["metric", "depth"]].to_dict("records")
    part = prompt_means(about, pool.units, pool.per_prompt[:, which], pool.nulls[:, which])
    frame, truth = part.to_pandas(), pool.per_prompt.mean(1)
    held = inside(frame["low"], frame["high"], truth)
    return np.where(pool.per_prompt.std(1) > 1e-9, held, np.nan)


# --- chains and sources -------------------------------------------------------------------------


def random_chains(model: interp.Model, seed: int, n: int) -> list:
    return linked_chains(model, n_chains=n, n_sentences=12, length=6, anchors=1, links=1, seed=seed)


def without_links(seed: int) -> Any:
    model = random_model("gpt2", seed)
    chains = [c.shuffled(seed + 1) for c in random_chains(model, seed, 4)]
    return model, chains


@cache
def kurtosis_pool() -> Any:
    model = random_model("gpt2", 0)
    return receiver_heads(model, random_chains(model, 0, 400), null=False)


def receivers(n: int) -> Any:
    """Kurtosis of a random model on a few of many chains."""

    def draw(seed: int) -> Any:
        pool, rng = kurtosis_pool(), np.random.default_rng([seed, 1])
        which = rng.integers(pool.per_prompt.shape[1], size=n)
        part = receiver_rows(
            pool.heads(),
            pool.per_prompt[:, which],
            pool.null_kurtosis[:, which],
            pool.vertical,
            pool.of_chain,
            pool.texts,
            pool.chains,
            pool.provenance,
        )
        frame = part.to_pandas()
        return inside(frame["low"], frame["high"], np.nanmean(pool.per_prompt, 1))

    return draw


def random_anchors(seed: int) -> Any:
    model, chains = without_links(seed)
    found = thought_anchors(model, chains, methods=("attention", "suppression"), seed=seed)
    return found.agreement(n_boot=399, seed=seed)["p"] < LEVEL


def judged(seed: int) -> Any:
    model = random_model("gpt2", seed)
    ways = ("attention", "heads", "gradient")
    return judge_sources(model, random_chains(model, seed, 16), methods=ways, n_heads=1, seed=seed)


def source_intervals(seed: int) -> Any:
    frame = judged(seed).to_pandas()
    return inside(frame["low"], frame["high"], frame["null"])


def confident(seed: int) -> Any:
    """Whether the confidence of any of 3 ways is better than the base rate (Bonferroni, t)."""
    from scipy.stats import t as student

    from interp.text.context.ways import BASELINE

    found = judged(seed)
    truth, n = found.truth.astype(float), len(found.documents)
    base = truth.mean()
    gain = (base - truth) ** 2 - (found.confidence - truth) ** 2
    each = gain.reshape(len(gain), n, -1).mean(2)  # by document
    z = each.mean(1) / (each.std(1, ddof=1) / n**0.5)
    least = student.isf(LEVEL / 3, n - 1)
    return [bool(x > least) for x, way in zip(z, found.metric, strict=True) if way != BASELINE]


# --- interp score -------------------------------------------------------------------------------


@cache
def scored(shape: str, number: int, names: tuple[str, ...]) -> dict:
    model = random_model(shape, 1000 + number)
    bounds = [b for b in map(bound, names) if why_not(model, b) is None]
    return calibration.found_by(model, bounds, 0)


def special(names: tuple[str, ...]) -> Any:
    """Whether a head of a random model is listed as special by these metrics."""

    def draw(seed: int) -> Any:
        shape = calibration.SHAPES[seed % 4]
        every = [scored(shape, seed // 4 + k, names) for k in range(7)]
        others = [{n: means_by_site(f.values) for n, f in x.items()} for x in every[1:]]
        tables = calibration.tables(random_model(shape, 1000 + seed // 4), every[0], others)
        if not tables:
            return False
        groups = {METRICS[n].group for n in names}
        return bool(calibration.judged(tables, tuple(groups))[0].special)

    return draw


CASES = (
    *(
        Case(
            "attribution.explain_difference",
            f"{told}, p_holm < 0.05",
            "prompts drawn alike",
            same_prompts(row),
            share=3,
        )
        for row, told in (("gradient_x_input", "any position"), ("target", "the target"))
    ),
    Case(
        "attribution.learn_head_weights",
        "held-out correlation, p < 0.05",
        "attention at random",
        permuted_attention,
        share=0.5,
    ),
    Case(
        "attribution.randomisation_check",
        "any of 3 steps, p_holm < 0.05",
        "scores drawn anew at each step",
        randomised,
        share=0.5,
    ),
    *(
        Case(
            "attribution.randomisation_check",
            f"last step of {method}, p < 0.05",
            "random models",
            last_step(method),
            share=0.3,
            why=why,
        )
        for method, why in (
            (
                "gradient_x_input",
                "the scores of two models agree by their architecture alone, as "
                "the position of the target stands out in both",
            ),
            ("raw_attention", "all texts share one draw of random weights, and p is of that draw"),
        )
    ),
    Case(
        "lens.direct_logits",
        "any part, p_holm < 0.05",
        "random targets of random models",
        random_targets,
    ),
    Case(
        "lens.tuned_lens",
        "errors and gain, 12 texts",
        "mean of 234 texts",
        lens_intervals,
        "interval",
        2,
    ),
    *(
        Case(
            "chains.receiver_heads",
            f"kurtosis, {n} chains",
            "mean of 400 chains",
            receivers(n),
            "interval",
        )
        for n in (4, 16)
    ),
    Case("Anchors.agreement", "p < 0.05", "random models and tokens", random_anchors, share=0.3),
    Case(
        "context.judge_sources",
        "precision, 8 documents",
        "random order, for random models",
        source_intervals,
        "interval",
        0.3,
    ),
    Case(
        "context.judge_sources",
        "Brier score of any way below the base rate's",
        "random models",
        confident,
        share=0.4,
    ),
    Case(
        "interp score",
        f"any head special by {', '.join(f'`{n}`' for n in NEW)}",
        "random models",
        special(NEW),
        share=0.48,
    ),
)
