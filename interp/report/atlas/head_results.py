"""Parts of the atlas on what single heads need or hold: caches, learned gates, probes, steering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from interp.core.result_rows import ResultRows
from interp.core.ties import ranked
from interp.report.atlas.rows import (
    FoundPart,
    between,
    frame_rows,
    made_of,
    plain_value,
    stated_weights,
)

if TYPE_CHECKING:
    from interp.cache.methods import RetrievalMethods
    from interp.cache.plan_result import CachePlan
    from interp.causal.gating.result import LearnedGates

NAMED = 4  # heads named in a sentence, and methods in the note on a head
KVHeadKey = tuple[str, int, int]  # stack, layer, key-value head


def _part(kind: str, title: str, text: str, frame: Any, made: Mapping[str, Any]) -> Any:
    same = [name for name in ("stack", "metric") if name in frame and frame[name].nunique() == 1]
    rows = frame_rows(frame, ("model", *same))
    return {
        "id": "",
        "kind": kind,
        "title": title,
        "text": text,
        "heads": [],
        **rows,
        "provenance": made_of(made),
    }


def _of_model(part: Any, made: Mapping[str, Any], **notes: Any) -> FoundPart:
    return FoundPart(part, str(made.get("model_id") or ""), stated_weights(made), **notes)


def _key(row: Mapping[str, Any]) -> KVHeadKey:
    return str(row["stack"]), int(row["layer"]), int(row["kv_head"])


def cache_cards_part(found: ResultRows) -> FoundPart:
    """Return the tokens that the cache of each key-value head needs, with its measured loss."""
    frame: Any = found.to_pandas()
    window = f"{found.sink} first and {found.recents[0]} last tokens"
    notes: dict[KVHeadKey, str] = {}
    for row in frame.to_dict("records"):
        tokens = f"{row['budget']:g}{between(row['budget_low'], row['budget_high'])}"
        null = f", on random weights {row['null']:+.3g}" if row["null"] == row["null"] else ""
        notes[_key(row)] = (
            f"Its cache needs {tokens} of {found.length} tokens for a loss of at most "
            f"{found.max_loss:g} nats per token. With only the {window} the loss rises by "
            f"{row['score']:+.3g}{between(row['low'], row['high'])}{null}. Attention: "
            f"{row['keeps']}"
        )
    least = found.sink + found.recents[0]
    few = int((frame["budget"] <= least).sum())
    most: Any = ranked(frame, "budget").head(NAMED)
    sentence = "; ".join(
        f"layer {row['layer']}, key-value head {row['kv_head']}: {row['budget']:g}"
        f"{between(row['budget_low'], row['budget_high'])}"
        for row in most[most["budget"] > least].to_dict("records")
    )
    text = (
        f"{few} of {len(frame)} key-value heads need no more than the {window} for a loss of at "
        f"most {found.max_loss:g} nats per token, each cut alone, on {found.losses.shape[2]} "
        f"prompts of up to {found.length} tokens."
    )
    text += f" Most tokens: {sentence}." if sentence else ""
    part = _part("cache", "What each cache must keep", text, frame, found.provenance)
    return _of_model(part, found.provenance, by_kv=notes)


def cache_plan_part(found: CachePlan) -> FoundPart:
    """Return which heads keep their whole cache under a plan, and the bound on the loss."""
    frame: Any = found.to_pandas()
    notes = {}
    for row in frame.to_dict("records"):
        kept = (
            "all tokens" if row["keeps"] == "all" else f"{row['score']:g} tokens ({row['keeps']})"
        )
        notes[_key(row)] = (
            f"The cache plan keeps {kept}: {row['bytes']:,} of {row['full_bytes']:,} bytes at "
            f"{found.length:,} tokens"
        )
    part = _part("cache", "Cache plan", found.summary(), frame, found.provenance)
    return _of_model(part, found.provenance, by_kv=notes)


def retrieval_part(found: RetrievalMethods) -> FoundPart:
    """Return the scores of each key-value head by the published ways to find retrieval heads."""
    frame: Any = found.to_pandas()
    notes: dict[KVHeadKey, str] = {}
    for key, rows in frame.groupby(["stack", "layer", "kv_head"], sort=False):
        lines = [
            f"{row['metric']} {row['score']:.3g}"
            + (f" (null {row['null']:.2g})" if row["null"] == row["null"] else "")
            for row in rows.head(NAMED).to_dict("records")
        ]
        notes[str(key[0]), int(key[1]), int(key[2])] = f"Retrieval methods: {', '.join(lines)}"
    agreed: Any = found.agreement()
    text = f"{len(found.methods)} ways to find retrieval heads among {len(found.kv)} caches."
    numbers = [c for c in agreed.columns if agreed[c].dtype.kind == "f"]
    if len(agreed) and numbers:
        low, high = agreed[numbers[0]].min(), agreed[numbers[0]].max()
        text += f" Rank correlations between them: {low:.2f} to {high:.2f}."
    part = _part("cache", "Retrieval heads by published methods", text, frame, found.provenance)
    return _of_model(part, found.provenance, by_kv=notes)


def sources_part(found: ResultRows) -> FoundPart:
    """Return how well heads find the part of a long context that an answer comes from."""
    frame: Any = found.to_pandas()
    text = " ".join(str(found).split())
    part = _part("cache", "Where answers come from", text, frame, found.provenance)
    return _of_model(part, found.provenance)


def gates_part(found: LearnedGates) -> FoundPart:
    """Return learned gates: which units a task keeps, and how that does on held-out prompts."""
    frame: Any = found.interval()
    task = str(found.provenance.get("task") or "a task")
    notes: dict[str, str] = {}
    for heads, row in zip(found.heads_of, frame.to_dict("records"), strict=True):
        with_unit = "" if len(heads) == 1 else f" of {row['part']}"
        for label in heads:
            notes[label] = (
                f"Gate{with_unit} for {task}: {row['score']:.2f}{between(row['low'], row['high'])} "
                f"over {row['n']} restarts, {row['role']}"
            )
    title = f"Learned gates ({found.method.replace('_', ' ')}): {task}"
    lines = [" ".join(line.split()) for line in str(found).splitlines()]
    text = " ".join(f"{line[:1].upper()}{line[1:].rstrip('.')}." for line in lines)
    part = _part("gates", title, text, frame, found.provenance)
    kept = set(found.kept)
    part["heads"] = [
        x
        for name, heads in zip(found.labels, found.heads_of, strict=True)
        for x in heads
        if name in kept
    ]
    return _of_model(part, found.provenance, notes=notes)


def probe_part(found: ResultRows) -> FoundPart:
    """Return a linear probe on heads: its held-out scores, and what is lost without each head."""
    scores, about = found.scores, found.about
    frame: Any = found.to_pandas()
    made = found.provenance
    low, high = scores["auc_interval"]
    p = scores.get("p")
    text = (
        f"A linear probe of {about['features']} on {about['items']} items of "
        f"{about['documents']} documents puts {scores['auc']:.3f} of the pairs in order on "
        f"held-out documents{between(low, high)}"
    )
    shuffled = scores.get("auc_shuffled")
    text += f"; {shuffled:.3f} with shuffled labels, p = {p:.3g}." if p and shuffled else "."
    if "selectivity" in scores:
        text += f" Selectivity against a control task: {scores['selectivity']:.3f}."
    several = frame["stack"].nunique() > 1
    notes, heads = {}, []
    order = ranked(frame, "score")
    for row in order.to_dict("records"):
        label = f"L{row['layer']}H{row['head']}"
        label = f"{row['stack']} {label}" if several else label
        span = between(row["low"], row["high"])
        notes[label] = (
            f"Probe of {about['features']}: without this head the held-out log loss rises by "
            f"{row['score']:+.3g}{span} {row['unit']}"
        )
        if row["low"] == row["low"] and row["low"] > 0 and len(heads) < NAMED:
            heads.append(label)
    part = _part("probe", f"Probe of {about['features']}", text, order, made)
    part["heads"] = heads
    return _of_model(part, made, notes=notes)


def doses_part(found: ResultRows) -> FoundPart:
    """Return what steering some heads does to a task and to plain text, over the factors."""
    frame: Any = found.to_pandas()
    lines: list[Any] = []
    sentences = []
    for (task, unit, _), random in zip(found.tasks, found.random, strict=True):
        mine = frame.loc[(frame["task"] == task).to_numpy()]
        values = {
            name: [plain_value(x) for x in mine[name]]
            for name in ("factor", "score", "low", "high", "null")
        }
        lines.append(
            {
                "name": f"{task} ({unit})",
                "kind": "result",
                "x": values["factor"],
                "y": values["score"],
                "low": values["low"],
                "high": values["high"],
            }
        )
        if len(random):
            lines.append(
                {
                    "name": f"{task}, random heads",
                    "kind": "random",
                    "x": values["factor"],
                    "y": values["null"],
                    "low": [],
                    "high": [],
                }
            )
        said = {found.factor.min(), found.unchanged, found.factor.max()}
        ends = mine.loc[mine["factor"].isin(sorted(said)).to_numpy()].sort_values(by="factor")
        sentences.append(
            f"{task}: "
            + ", ".join(
                f"{row['score']:.3g}{between(row['low'], row['high'])} at {row['factor']:g}"
                for row in ends.to_dict(orient="records")
            )
            + f" ({unit})"
        )
    what = "output times the factor" if found.how == "scale" else "a direction times the factor"
    names = ", ".join(found.steered)
    text = (
        f"{names}: {what}; 1 is the model itself. "
        if found.how == "scale"
        else (f"{names}: {what} is added; 0 is the model itself. ")
    )
    title, text = f"Steering {names}: {found.tasks[0][0]}", f"{text}{'; '.join(sentences)}."
    part = _part("steering", title, text, frame, found.provenance)
    part["heads"] = list(found.steered)
    part["figure"] = {"draw": "curves", "x": "factor", "y": "task and loss", "lines": lines}
    return _of_model(part, found.provenance)


def token_part(document: Mapping[str, Any]) -> FoundPart:
    """Return the importance of the tokens of one text by several measures, and their effect."""
    rows = document["tokens"]
    tokens = [str(row["token"]) for row in rows]
    measures = (
        [name for name in rows[0] if name not in ("position", "token", "special")] if rows else []
    )
    made = document.get("provenance", {})
    figure: Any = {
        "draw": "tokens",
        "tokens": tokens,
        "rows": [
            (
                "effect of hiding the token" if name == "effect" else name,
                [row[name] for row in rows],
            )
            for name in measures
        ],
    }
    part: Any = {
        "id": "",
        "kind": "attribution",
        "title": "Importance of tokens by published measures",
        "text": f"{max(len(measures) - 1, 0)} measures on one text of {len(tokens)} tokens, beside "
        "the change of the output when each token is hidden.",
        "heads": [],
        "columns": ["position", "token", *measures],
        "rows": [
            [row["position"], row["token"], *(row[name] for name in measures)] for row in rows
        ],
        "figure": figure,
        "provenance": made_of(made),
    }
    return FoundPart(
        part, str(made.get("model_id") or made.get("model") or ""), stated_weights(made)
    )
