"""Text of results on texts and their tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from interp.core.ties import largest, ranked, within

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows


def precision_summary(found: ResultRows) -> str:
    """Return the mean precision of each way of finding sources, beside a random order."""
    ways = zip(found.metric, found.per_prompt.mean(1), strict=True)
    what, unit = (
        ("average precision", "prompts")
        if found.kind == "ContextSources"
        else ("precision at k", "documents")
    )
    return (
        f"{found.kind}, {what} on {found.per_prompt.shape[1]} held-out {unit}: "
        f"{', '.join(f'{way} {x:.2f}' for way, x in ways)}; random order {found.random.mean():.2f}"
    )


def topic_products_summary(found: ResultRows) -> str:
    """Return the difference between pairs of words of the same topic and of two."""
    said = [
        f"(same minus other topic {row['score']:+.3g} standard deviations [{row['low']:.3g}, "
        f"{row['high']:.3g}], shuffled {row['null']:+.3g})"
        for row in found
        if row["part"] == "difference"
    ]
    return "TopicProducts" + "".join(said)


def learned_head_weights_summary(found: ResultRows) -> str:
    """Return the correlations on held-out texts and the largest weights."""
    first = ", ".join(f"{row['weights']} {row['score']:+.3f}" for row in found.held_out)
    lines = [f"rank correlation with the change under ablation on held-out texts [95 %]: {first}"]
    for row in found.held_out:
        says = f"null {row['null']:+.3f}, p {row['p_holm']:.2g}, {row['n']} texts"
        lines.append(
            f"  {row['weights']:<10} {row['score']:+.3f} [{row['low']:+.3f}, "
            f"{row['high']:+.3f}]  {says}"
        )
    lines.append(f"weights ({found.unit}), ridge penalty {found.penalty:g}")
    for row in found.top(found._asked or 8):
        name = f"L{row['layer']}H{row['head']}"
        lines.append(f"  {name:<8} {row['score']:+.4g} ± {row['sem']:.2g}")
    return "\n".join(lines)


def answer_sources_summary(found: ResultRows) -> str:
    """Return the first sentence by each way."""
    parts = {way: found[way] for way in dict.fromkeys(found.metric.tolist())}
    each = ", ".join(f"{way} {x.sentence[largest(x.score)]}" for way, x in parts.items())
    return f"AnswerSources of {found.name}, first sentence by {each}"


def static_attention_summary(found: ResultRows) -> str:
    """Return the heads whose queries agree most on the order of keys."""
    heads, mean = found.columns["head"], found.per_prompt.mean(1)
    each = ", ".join(f"L{found.layer[i]}H{heads[i]} {mean[i]:.2f}" for i in np.argsort(-mean)[:3])
    return f"StaticAttention of {len(found)} heads, most static: {each}"


def decoder_lens_summary(found: ResultRows) -> str:
    """Return the loss by depth of the encoder."""
    loss = zip(found.depth, found.per_prompt.mean(1), strict=True)
    text = ", ".join(f"{name} {x:.3g}" for name, x in loss)
    norm = f"; {found.norm} applied" if found.norm else ""
    return f"DecoderLens, loss in nats per token by depth of the encoder{norm}: {text}"


def direct_logits_summary(found: ResultRows) -> str:
    """Return the logit and its largest parts."""
    rows = ranked(found.wide(), "score", absolute=True)
    scale = float(rows["score"].abs().to_numpy(float).max())
    rows = rows.head(found._asked or 10)
    best = "\n".join(
        f"  {name:<10} {x:+.4g}" for name, x in zip(rows["part"], rows["score"], strict=True)
    )
    return (
        f"{found.target} = {found.value:.6g} at {found.token!r} (position {found.position})\n"
        f"{best}\n  the parts sum to it {within(found.residual, scale)}"
    )


def similarity_matrix_summary(found: ResultRows) -> str:
    """Return the parts of the cosine and the largest pairs of tokens."""
    a, b, c = found.reference_terms
    lines = [
        f"cosine {found.cosine:+.4f} = pairs of tokens {found.matrix.sum():+.4f}, references "
        f"{a:+.4f} {b:+.4f} {c:+.4f}, residual {found.residual:+.1e}"
    ]
    shown = ranked(found.wide(), "score", absolute=True)
    for row in shown.head(found._asked or 10).to_dict("records"):
        pair = f"{row['token']} ({row['position']})"
        other = f"{row['other_token']} ({row['other_position']})"
        lines.append(f"  {row['score']:+.4f}  {pair:<16} {other}")
    return "\n".join(lines)


def pair_check_summary(found: ResultRows) -> str:
    """Return what the margin of minimal pairs loses without the heads, and without random ones."""
    drawn = found.drop[1:]
    return (
        f"PairCheck({' '.join(found.checked)}: {found.accuracy_clean:.0%} of {len(found.margin)} "
        f"pairs, {found.accuracy[0]:.0%} without; margin {found.margin.mean():.3g} nats, lost "
        f"{found.drop[0]:.3g} ± {found.sem[0]:.2g}; random heads of the same layers "
        f"{drawn.mean():.3g} [{drawn.min():.3g}, {drawn.max():.3g}]; p {found.p:.2g})"
    )


def receiver_heads_summary(found: ResultRows) -> str:
    """Return the heads of largest kurtosis."""
    from interp.text.chains.receivers import largest_receivers

    largest = np.sort(found.score)[::-1]
    first = ", ".join(
        f"{h} {k:.1f}" for h, k in zip(largest_receivers(found, 3), largest, strict=False)
    )
    return f"ReceiverHeads on {len(found.chains)} chains, largest kurtosis: {first}"
