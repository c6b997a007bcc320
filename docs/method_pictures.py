"""Pictures of the pages of methods: docs/method_pictures/*.svg.

    python docs/method_pictures.py [NAMES]     draws all by default

Each is computed on a planted model, whose heads have known roles, or on a bundled one, so a picture
shows what the methods find where the answer is known.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from method_captions import CAPTIONS

import interp

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

ZOO = ("detectors", "weights", "geometry", "cache", "experiments", "roles")  # of one model
FOLDER = Path(__file__).parent / "method_pictures"
SENTENCE = "the old dog sings and with Anna a red bird falls so"
ANSWER = "token:she|he"
_ROUNDING = 1e-6


def _grid(values: Any, rows: Sequence[str], columns: Sequence[str], title: str) -> go.Figure:
    from interp.draw.charts import grid
    from interp.draw.colours import palette

    array = np.asarray(values, dtype=float)
    array = array / np.maximum(np.nanmax(abs(array), axis=1, keepdims=True), 1e-12)
    hover = [
        [f"{row}, {column}: {array[i, j]:.2f}" for j, column in enumerate(columns)]
        for i, row in enumerate(rows)
    ]
    figure = grid(
        array[::-1],
        rows[::-1],
        columns,
        hover=hover[::-1],
        title=title,
        unit="share",
    )
    signed = bool(np.nanmin(array) < -_ROUNDING)
    figure.data[0].update(colorscale=palette(signed), zmin=-1 if signed else 0, zmax=1)
    return figure.update_layout(height=150 + 24 * len(rows))


def _bars(names: Sequence[str], frame: pd.DataFrame, title: str, unit: str) -> go.Figure:
    from interp.draw.charts import bars

    return bars(frame, names, title=title, unit=unit).update_layout(height=340)


def _zoo_heads() -> dict[str, str]:
    """Return heads of `planted:zoo` and their roles: the planted ones and some random ones."""
    from interp.planted import build

    planted, model = build("zoo"), interp.load("planted:zoo")
    roles = {str(head): planted.role(head.layer, head.head) for head in model.heads()}
    known = {head: role.replace("_", " ") for head, role in roles.items() if role != "noise"}
    return known | dict.fromkeys([h for h in roles if h not in known][:4], "random")


def caption(name: str) -> str:
    """Return the text below a picture."""
    if name not in ZOO:
        return CAPTIONS[name]
    heads = ", ".join(f"{head} {role}" for head, role in _zoo_heads().items())
    return f"{CAPTIONS[name]} The heads: {heads}."


def _scores(group: str) -> go.Figure:
    from interp.core.registry import METRICS
    from interp.heads.scoring import why_not

    model = interp.load("planted:zoo")
    names = [name for name, entry in METRICS.items() if entry.group == group]
    names = [name for name in names if why_not(model, METRICS.load(name).bind()) is None]
    table = interp.score(model, names, null="none")
    heads = [interp.Head.parse(head) for head in _zoo_heads()]
    at = [h.layer for h in heads], [h.head for h in heads]
    values = {metric: table.matrix(metric)[at] for metric in table.metrics}
    # a metric that fewer than half of the heads have a value of has no row
    shown = {m: x for m, x in values.items() if np.isfinite(x).mean() >= 0.5}
    return _grid([*shown.values()], [*shown], [*map(str, heads)], f"{group} on planted:zoo")


def _cross() -> go.Figure:
    from interp.alignment import encode_pairs, made_sentence_pairs
    from interp.core.registry import METRICS

    model = interp.load("bundled:reorder")
    names = [name for name, entry in METRICS.items() if entry.group == "cross"]
    prompts = encode_pairs(model, made_sentence_pairs(32)).prompts
    frame = interp.score(model, names, prompts, null="none").to_pandas()
    values = [np.asarray(frame[frame["metric"] == name]["score"]) for name in names]
    heads = [f"L{layer}H{head}" for layer in (0, 1) for head in (0, 1)]
    return _grid(values, names, heads, "cross attention of bundled:reorder")


def _segments() -> go.Figure:
    from interp.planted import image_readers

    planted = image_readers()
    model = interp.load(planted.model, name="image readers")
    names = ["text_to_image", "segment_mass:queries=text"]
    frame = interp.score(model, names, planted.prompts(8), null="none").to_pandas()
    frame = frame[frame["stack"] == "decoder"]
    values = [np.asarray(frame[frame["metric"] == name]["score"]) for name in names]
    heads = [f"L{layer}H{head}" for layer in range(2) for head in range(4)]
    return _grid(values, names, heads, "attention to images in a planted model")


def _alignment() -> go.Figure:
    from interp.alignment import made_sentence_pairs, pair_alignment

    pairs = made_sentence_pairs(16)
    swapped = next(pair for pair in pairs if str(pair.source).startswith("swap"))
    return pair_alignment("bundled:reorder", swapped, "L1H0").matrix()


def _categories() -> go.Figure:
    from interp.core.registry import METRICS

    names = [name for name, entry in METRICS.items() if entry.group == "categories"]
    table = interp.score("bundled:induction", names, null="none")
    values = [table.matrix(name).ravel() for name in names]
    heads = [f"L{at[0]}H{at[1]}" for at in np.ndindex(*table.matrix(names[0]).shape)]
    return _grid(values, names, heads, "categories on bundled:induction")


def _attribution(group: str) -> go.Figure:
    from interp.attribution import Example, attribute
    from interp.core.registry import ATTRIBUTION_METHODS

    model = interp.load("bundled:deceive")
    tokens = list(Example(model, SENTENCE, ANSWER).tokens)
    rows, names = [], []
    asked = [name for name, entry in ATTRIBUTION_METHODS.items() if entry.group == group]
    runs = [(name, name, {}) for name in asked]
    if group == "token_importance":
        runs.append(("effect of hiding", "occlusion", {"how": "hide"}))
    for shown, name, options in runs:
        scores = np.asarray(attribute(model, SENTENCE, name, ANSWER, **options).scores)
        if scores.shape == (len(tokens),):
            rows.append(abs(scores[1:-1]))
            names.append(shown)
    return _grid(rows, names, tokens[1:-1], "which word decides between she and he")


def _importance() -> go.Figure:
    from interp import causal

    model = interp.load("planted:backup")
    task = causal.repeats_task(model, n=4, max_length=8)
    heads = ["L0H3", "L1H0", "L2H0"]
    found = {
        "ablation": causal.leave_one_out(model, task, heads=heads, null="none"),
        "shapley": causal.shapley(model, task, heads=heads),
        "banzhaf": causal.banzhaf(model, task, heads=heads),
    }
    import plotly.graph_objects as go

    figure = go.Figure()
    for name, one in found.items():
        rows = [f"{head}: {name}" for head in heads]
        figure.add_bar(y=rows, x=list(one.score), name=name, orientation="h")
    figure.update_layout(title="the task's loss shared out", template="plotly_white", height=340)
    figure.update_layout(showlegend=False)
    figure.update_traces(showlegend=False)
    return figure.update_xaxes(title_text="nats/token")


def _pruning() -> go.Figure:
    from interp import causal

    model = interp.load("bundled:induction")
    task = causal.repeats_task(model, n=8)
    ranked = causal.leave_one_out(model, task, null="none")
    return causal.pruning_curve(model, task, ranked, n_random=5, n_loops=4).plot()


def _kinds() -> go.Figure:
    import pandas as pd

    from interp import causal
    from interp.causal.game.interventions import INTERVENTIONS

    model = interp.load("planted:induction")
    task = causal.repeats_task(model, n=8, max_length=8)
    others = interp.repeats(model, n=8, max_length=8, seed=1)
    # a second prompt must have the same length
    kinds = [name for name, x in INTERVENTIONS.items() if x.needs != "prompt"]
    reference = {name: others for name in kinds if INTERVENTIONS[name].needs == "corpus"}
    lost = [
        float(one.score[0])
        for one in (
            causal.leave_one_out(
                model, task, heads=["L1H0"], kind=kind, null="none", reference=reference.get(kind)
            )
            for kind in kinds
        )
    ]
    frame = pd.DataFrame({"score": lost, "low": np.nan, "high": np.nan})
    return _bars(kinds, frame, "the induction head replaced", "nats/token")


def _circuit_methods() -> go.Figure:
    from interp.circuits import find_circuit, make_contrast
    from interp.core.registry import CIRCUIT_METHODS

    model = interp.load("planted:bystander")
    task = make_contrast(model, "induction", n=8)
    heads = [str(head) for head in model.heads()]
    rows = []
    for method in CIRCUIT_METHODS:
        scores = find_circuit(model, task, method).nodes_to_pandas().set_index("node")["score"]
        rows.append([abs(float(scores.get(head, 0.0))) for head in heads])
    return _grid(rows, list(CIRCUIT_METHODS), heads, "heads of a planted circuit")


def _circuit() -> go.Figure:
    from interp.circuits import evaluate_circuit, find_circuit, make_contrast

    model = interp.load("bundled:induction")
    circuit = find_circuit(model, make_contrast(model, "induction", n=16), "screen_verify")
    fresh = make_contrast(model, "induction", n=16, seed=1)
    return evaluate_circuit(model, circuit, fresh, n_random=10).plot()


def _syntax() -> go.Figure:
    from interp.core import resources
    from interp.syntax import dependency_trees, read_conllu

    bank = read_conllu(resources.folder("data") / "treebank.conllu")
    return dependency_trees(interp.load("bundled:induction"), bank, controls=False).plot()


def _safety() -> go.Figure:
    from interp.safety import (
        marker_sets,
        refusal_log_odds,
        refusal_projection_scores,
        safety_curves,
    )

    model = interp.load("planted:refusal")
    sets = marker_sets(model, n=8)
    along = refusal_projection_scores(model, sets.harmful, sets.harmless)
    refusal = refusal_log_odds(model, sets.harmful)
    return safety_curves(model, along, refusal, sets.harmless, k=4, n_random=4).plot()


def _needle() -> go.Figure:
    import pandas as pd

    from interp.heads import needle

    model = interp.load("bundled:induction")
    instances = needle.ids_instances(model, needles=4, lengths=[64, 128], depths=[0.0, 0.5, 1.0])
    found = needle.copy_paste(model, instances)
    scores = found.score()
    frame = pd.DataFrame({"score": list(scores.values()), "low": np.nan, "high": np.nan})
    names = [f"L{layer}H{head}" for layer, head in scores]
    figure = _bars(names, frame, "needle copied", "share of the needle")
    return figure.add_hline(y=float(found.chance.mean()), line={"dash": "dot", "color": "#000000"})


def _sinks() -> go.Figure:
    import pandas as pd

    from interp.heads import outliers

    model = interp.load("planted:sink")
    texts = interp.Prompts(tuple((0, *range(2 + i, 20 + i)) for i in range(4)))
    rows = outliers.sink_mass(model, texts).to_pandas()
    frame = pd.DataFrame({"score": rows["score"].to_numpy(), "low": np.nan, "high": np.nan})
    names = [f"L{r.layer}H{r.head}" for r in rows.itertuples()]
    return _bars(names, frame, "attention to the strongest sink", "attention mass")


def _lens() -> go.Figure:
    model = interp.load("bundled:induction")
    ids = list(interp.repeats(model, n=1, max_length=10).ids[0])
    return interp.lens.logit_lens(model, ids, k=1).plot().update_layout(height=300)


def _probes() -> go.Figure:
    from interp.probes import output_features, train_probe

    rng = np.random.default_rng(0)
    model = interp.load("planted:induction")
    prompts, labels = [], [i % 2 for i in range(80)]
    for label in labels:
        ids = rng.choice(np.arange(4, model.d_vocab), 11, replace=False).tolist()
        prompts.append([*ids[:4], 2 + label, *ids[4:], ids[3]])
    documents = [i // 2 for i in range(80)]
    return train_probe(output_features(model, prompts), labels, documents, n_permutations=0).plot(8)


def _vision() -> go.Figure:
    from interp.bundled.shape_images import shape_images
    from interp.vision import locate_spurious_heads

    images = shape_images(0, 120, aligned=0.5)
    model = interp.load("bundled:shapes-spurious")
    return locate_spurious_heads(model, images, images.labels, images.cues).plot()


def _vision_language() -> go.Figure:
    from interp.planted import image_text
    from interp.vision.language import visual_sinks

    planted = image_text()
    model = interp.load(planted.model, name="planted picture")
    return visual_sinks(model, planted.prompts(8)[0]).plot()


def _chains() -> Any:
    from interp.text import chains

    model = interp.load("planted:induction")
    [chain] = chains.linked_chains(model, n_chains=1, n_sentences=10, length=6, anchors=1, links=3)
    attention = chains.sentence_attention(model, chain)
    names = [str(i) for i in range(len(attention))]
    return _grid(attention, names, names, "attention between sentences")


def _context() -> go.Figure:
    from interp.text import chains, context

    model = interp.load("planted:induction")
    documents = chains.linked_chains(
        model, n_chains=8, n_sentences=10, length=6, anchors=1, links=3
    )
    return context.judge_sources(
        model, documents, methods=["heads", "leave_one_out"], n_heads=1
    ).plot()


def _graphs() -> go.Figure:
    from interp.text import graphs

    model = interp.load("planted:induction")
    prompt = [0, *range(1, 13), *range(1, 13)]
    return graphs.attention_graph(model, prompt, heads=["L1H0"], threshold="row:1").plot()


PICTURES: dict[str, Callable[[], Any]] = {
    **{group: partial(_scores, group) for group in ZOO},
    "categories": _categories,
    "cross": _cross,
    "segments": _segments,
    "alignment": _alignment,
    "attribution_methods": partial(_attribution, "attribution methods"),
    "token_importance": partial(_attribution, "token_importance"),
    "importance": _importance,
    "importance_more": _pruning,
    "replacement": _kinds,
    "circuit_methods": _circuit_methods,
    "circuits": _circuit,
    "syntax": _syntax,
    "safety": _safety,
    "needle": _needle,
    "outliers": _sinks,
    "lens": _lens,
    "vision": _vision,
    "vision_language": _vision_language,
    "chains": _chains,
    "context": _context,
    "graphs": _graphs,
    "probes": _probes,
}


def drawn(name: str) -> str:
    """Return the picture of one page as a complete SVG file."""
    from interp.draw.figure import svg
    from interp.draw.svg import standing

    return standing(svg(PICTURES[name]()), style=True)


def main(names: Sequence[str]) -> None:
    """Draw the named pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name in names or PICTURES:
        path = FOLDER / f"{name}.svg"
        path.write_text(drawn(name), encoding="utf-8")
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
