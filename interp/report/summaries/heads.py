"""Text of results on heads and layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows


def layer_entropies_summary(found: ResultRows) -> str:
    """Return the entropy of attention minus that of the MLP in each layer."""
    rows = found.wide()
    rows = rows[rows["part"] == "difference"]
    pairs = zip(rows["layer"], rows["score"], strict=True)
    said = [f"layer {layer}: {score:+.3g}" for layer, score in pairs]
    return f"LayerEntropies(attention minus MLP, nats per channel; {', '.join(said)})"


def roofline_summary(found: ResultRows) -> str:
    """Return the operations and bytes of a pass, and the limit that binds."""
    done, moved = found.totals["pass"]
    return (
        f"Roofline({found.tokens} tokens: {done:.3g} operations, {moved:.3g} bytes, limited by "
        f"{found.binds['pass']}, at least {found.seconds['pass']:.3g} s)"
    )


def cache_cards_summary(found: ResultRows) -> str:
    """Return the number of heads and prompts, and the measured windows."""
    return (
        f"CacheCards of {len(found)} key-value heads: sink {found.sink}, windows of "
        f"{', '.join(map(str, found.recents))} tokens on {found.losses.shape[2]} prompts"
    )


def gate_pattern_summary(found: ResultRows) -> str:
    """Return the number of gates, and the window of heads whose cache is cut."""
    window = "none" if found.window is None else "+".join(map(str, found.window))
    return f"GatePattern of {len(found)} key-value heads, window {window}"


def probe_summary(found: ResultRows) -> str:
    """Return the held-out scores of a probe, with their intervals and baselines."""
    s, a = found.scores, found.about
    low, high = s["auc_interval"]
    lines = [
        f"{a['features']}: {a['items']} items of {a['documents']} documents, {a['folds']} folds",
        f"  auc       {s['auc']:.3f} ({low:.3f} to {high:.3f})"
        + (f", shuffled labels {s['auc_shuffled']:.3f}, p = {s['p']:.3g}" if s["p"] else ""),
        f"  accuracy  {s['accuracy']:.3f} ({s['accuracy_interval'][0]:.3f} to "
        f"{s['accuracy_interval'][1]:.3f}), most common label {s['most_common']:.3f}",
        f"  Brier     {s['brier']:.3f}, before calibration {s['brier_uncalibrated']:.3f}, of a "
        f"constant {s['brier_constant']:.3f}; calibration error {s['calibration_error']:.3f}",
    ]
    if "selectivity" in s:
        lines.append(
            f"  control   accuracy {s['control_accuracy']:.3f}, selectivity {s['selectivity']:.3f}"
        )
    return "\n".join(lines)
