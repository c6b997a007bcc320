"""Text of results on dictionaries of features."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows


def feature_effects_summary(found: ResultRows) -> str:
    """Return the task as it is and the largest changes without a feature."""
    lines = [
        f"{len(found)} features, {found.task}: {found.unchanged:.4g} {found.unit} as it is; "
        "largest changes without one:"
    ]
    for x in found.top(min(8, len(found))).to_pandas().to_dict("records"):
        lines.append(
            f"  F{x['feature']}: {x['score']:+.4g} [{x['low']:+.4g}, "
            f"{x['high']:+.4g}], random direction {x['null']:+.4g}"
        )
    return "\n".join(lines)


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


def lorsa_scores_summary(found: ResultRows) -> str:
    """Return the scores of the layer and of the untrained one."""
    lines = [f"Lorsa layer on {found.per_prompt.shape[1]} held-out prompts"]
    for x in found:
        lines.append(
            f"  {x['layer_kind']} {x['metric']}: {x['score']:.3f} [{x['low']:.3f}, {x['high']:.3f}]"
        )
    return "\n".join(lines)


def lorsa_training_summary(found: ResultRows) -> str:
    """Return the trained layer, and the last step of its curve."""
    return (
        f"{found.trained}\n  after {found.step[-1]:.0f} steps, on the last training "
        f"batch: explained variance {found.score[-1]:.3f}, {found.k[-1]:.0f} heads per position"
    )


def dictionary_training_summary(found: ResultRows) -> str:
    """Return the trained dictionary, and the last step of its curve."""
    return (
        f"{found.trained}\n  after {found.step[-1]:.0f} steps, on the last "
        f"training batch: explained variance {found.score[-1]:.3f}, {found.l0[-1]:.1f} codes per "
        f"position, {found.dead_share[-1]:.1%} of the features dead"
    )


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


def monosemanticity_summary(found: ResultRows) -> str:
    """Return the mean of each kind of units."""
    from interp.dictionaries.explained_attention import means_by_kind

    lines = ["Monosemanticity: attention explained by one detector, beyond chance, held out"]
    for x in means_by_kind(found).to_dict("records"):
        lines.append(
            f"  {x['kind']}: {x['score']:.3f} [{x['low']:.3f}, {x['high']:.3f}], "
            f"{x['units']} units, {x['n']} prompts"
        )
    return "\n".join(lines)
