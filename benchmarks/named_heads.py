"""How often random models get a named head, and name movers beside the ranking by ablation.

    python benchmarks/named_heads.py [--models 40] [--draws 6] [--stories FOLDER]

False findings: every metric of the group `roles` is scored on randomly initialised models that know
all words of the tasks, without asking whether they can do the task, as a null does; then the share
of models that pass the question. Name movers: on a story model (`--stories`), the direct effects of
`name_mover` beside the ablation of single heads on other prompts of the task, with bootstrap
intervals over prompts. Writes benchmarks/named_heads.json and benchmarks/named_heads.md.
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import calibration as bench
import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing

import interp
from interp import causal
from interp.causal.steering.in_context import FUNCTIONS
from interp.circuits.named._ordered import LISTS
from interp.circuits.tasks import TASKS, make_contrast
from interp.circuits.tasks import brackets_pairs as brackets
from interp.circuits.tasks import fact_pairs as facts
from interp.circuits.tasks import greater_than_pairs as years
from interp.circuits.tasks import ioi_pairs as ioi
from interp.core.clusters import cluster_summary
from interp.core.rank_statistics import spearman, top_k
from interp.core.registry import METRICS
from interp.core.resources import folder
from interp.core.statistics import percentile_interval, redraw, tails_of
from interp.core.table import HeadTable
from interp.heads.roles.decide import roles

HERE = Path(__file__).parent
PIECES = r"\n| ?\d\d?| ?\p{L}+| ?[^\s\p{L}\d]"
SAME = re.compile(r"\n| ?\d\d?| ?[^\W\d_]+| ?[^\s\w]|_")
SMALLER = {
    "function_vector": {"prompts": 4},
    "s_inhibition": {"pairs": 16},
    "duplicate_token_text": {"texts": 12},
    "previous_token_text": {"texts": 12},
    "dependency_relation": {"sentences": 120},
}
SHARED = (
    "matching_bracket",
    "delimiters",
    "refusal_projection",
)  # also in other groups
DRAWN, LEVEL, TOP = 2000, 0.95, 5


def tokenizer() -> Any:
    """Whole words, numbers of at most two digits, for every word of the tasks."""
    from transformers import PreTrainedTokenizerFast

    texts = [re.sub(r"\{\w\}", "", t) for about in TASKS.values() for t in about.templates]
    words = [
        *ioi.NAMES,
        *ioi.PLACES,
        *ioi.THINGS,
        *facts.CAPITALS,
        *facts.CAPITALS.values(),
        *years.NOUNS,
        *brackets.WORDS,
        *brackets.CLOSES,
        *brackets.CLOSES.values(),
    ]
    words += [w for pairs in FUNCTIONS.values() for pair in pairs for w in pair]
    words += [w for items, _ in LISTS.values() for w in items]
    words += [f"{y:02d}" for y in range(100)]
    texts += [*words, *(f" {w}" for w in words), "Q: a\nA: b\n\n"]
    texts += [(folder("data") / "prompts.txt").read_text(encoding="utf-8")]
    pieces = sorted({p for text in texts for p in SAME.findall(text)})
    ids = {"<s>": 0, "<unk>": 1} | {p: i + 2 for i, p in enumerate(pieces)}
    made = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(PIECES), "isolated")
    made.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", bos_token="<s>")


def random_speaker(words: Any, seed: int) -> interp.Model:
    """A small Llama with random weights, whose config states a marker and a refusal."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        bos_token_id=0,
        eos_token_id=None,
        marker_token_id=7,
        refusal_token_ids=[9],
    )
    torch.manual_seed(2000 + seed)
    return interp.load(LlamaForCausalLM(config).eval(), tokenizer=words, name="random words")


def role_metrics() -> list[str]:
    """The metrics of the group, with those that belong to it and to another one."""
    return [name for name in METRICS.expand(["roles"]) if name != "direct_effect"]


def false_findings(number: int, draws: int) -> dict[str, Any]:
    """Count heads and models with a role, where nothing is to be found."""
    words = tokenizer()
    bounds = [METRICS.load(m).bind(**SMALLER.get(m, {})) for m in role_metrics()]
    every: list[dict[str, Any]] = []
    able: Counter = Counter()
    for at in range(number):
        model = random_speaker(words, at)
        mine: dict[str, Any] = {}
        for b in bounds:
            shared = b.label.partition(":")[0] in SHARED
            asked = None if shared else b.experiment(model, 0, bench.silent)
            able[b.label] += asked is not None and scored(asked)
            mine[b.label] = (
                scores_of(asked)
                if asked is not None and scored(asked)
                else bench.found_by(model, [b], 0)[b.label]
            )
        every.append(mine)
        print(at, dict(able), flush=True)
    scores = [{k: bench.means_by_site(f.values) for k, f in x.items()} for x in every]
    model = random_speaker(words, 0)
    claimed_models = claimed_heads = heads = 0
    which: Counter = Counter()
    labels = {b.label: b for b in bounds}
    for at, mine in enumerate(every):
        others = [scores[(at + k) % number] for k in range(1, draws + 1)]
        table = HeadTable.concat(
            [tables_of(model, labels[k], f, [x[k] for x in others]) for k, f in mine.items()]
        )
        found = roles(table).assigned
        some = [x for x in found if x.roles]
        claimed_models += bool(some)
        claimed_heads += len(some)
        heads += len(found)
        which.update(role for x in some for role in x.roles)
    return {
        "models": number,
        "draws": draws,
        "heads": heads,
        "metrics": list(labels),
        "heads_claimed": claimed_heads,
        "models_claimed": claimed_models,
        "roles": dict(which),
        "heads_interval": bench.between(claimed_heads, heads),
        "models_interval": bench.between(claimed_models, number),
        "passed": {k: able[k] for k in labels if k.partition(":")[0] not in SHARED},
    }


def scored(trials: Any) -> bool:
    """Tell whether the model can do the task, so that there are scores."""
    return any(bool(x.isfinite().any()) for x in trials.values.values())


def scores_of(trials: Any) -> bench.MetricScores:
    """The scores of an experiment with its own null."""
    null = None if trials.null is None else bench._arrays(trials.null)
    kind = "random-init" if null is None else trials.null_kind
    return bench.MetricScores(bench._arrays(trials.values), trials.clusters, kind, null)


def tables_of(model: interp.Model, metric: Any, found: Any, draws: Any) -> HeadTable:
    """The table of one metric, with the scores of other models as draws of random weights."""
    held = bench.MetricScores(found.values, found.clusters, found.null_kind, found.null, draws)
    return bench.table_of(model, metric, held, bench.model_provenance(model), {})


def movers_and_ablation(path: Path, pairs: int) -> dict[str, Any]:
    """Rank agreement of direct effects and of ablation effects, each on prompts of its own."""
    model = interp.load(path)
    trials = METRICS.load("name_mover").bind(pairs=pairs).experiment(model, 0, bench.silent)
    assert trials.clusters is not None
    effects = np.concatenate([x.numpy() for x in trials.values.values()], 1)
    task = make_contrast(model, "ioi", n=pairs, seed=1).task
    lost = causal.leave_one_out(model, task, null="none", kind="mean-batch")
    ablated = np.asarray(lost.per_prompt).T
    names = [f"L{s.layer}H{h}" for s in trials.values for h in range(s.n_heads)]
    order = [f"L{r.layer}H{r.head}" for r in lost.to_pandas().itertuples()]
    ablated = ablated[:, [order.index(n) for n in names]]

    def agreement(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
        both = np.stack([x.mean(0), y.mean(0)])
        shared = len(top_k(both[0], TOP) & top_k(both[1], TOP))
        return float(spearman(both)[0, 1]), float(shared)

    rng = np.random.default_rng(3)
    drawn = np.array(
        [
            agreement(effects[a], ablated[b])
            for a, b in zip(
                redraw(len(effects), DRAWN, rng), redraw(len(ablated), DRAWN, rng), strict=True
            )
        ]
    )
    ends = percentile_interval(drawn, tails_of(LEVEL), axis=0)
    rank, shared = agreement(effects, ablated)
    # of the later half of the layers alone, where heads can write the answer
    late = np.array([int(n[1:].partition("H")[0]) >= len(trials.values) // 2 for n in names])
    top = np.argsort(-effects.mean(0))[:TOP]
    p = cluster_summary(effects, trials.clusters)
    return {
        "model": path.name,
        "pairs": pairs,
        "heads": len(names),
        "told": trials.headline,
        "spearman": rank,
        "spearman_interval": ends[:, 0].tolist(),
        "shared_top": shared,
        "shared_interval": ends[:, 1].tolist(),
        "top": TOP,
        "spearman_late": agreement(effects[:, late], ablated[:, late])[0],
        "movers": [
            {
                "head": names[i],
                "direct": float(effects[:, i].mean()),
                "sem": float(p.sem[i]),
                "ablation": float(ablated[:, i].mean()),
                "ablation_rank": 1 + int((ablated.mean(0) > ablated[:, i].mean()).sum()),
            }
            for i in top
        ],
    }


def page(found: dict[str, Any]) -> str:
    """Write the page of figures."""
    x = found["false"]
    out = ["# Named heads: false findings, and name movers beside ablation", ""]
    out.append(
        f"{x['models']} randomly initialised models (Llama, 2 layers, 4 heads) that know the words "
        f"of all tasks, {len(x['metrics'])} metrics, {x['draws']} draws of random weights. The "
        "nominal rate of models with any head in a role is at most 5 %. The tasks are scored "
        "whether or not the model can do them. In brackets exact binomial 95 % intervals."
    )
    out += ["", "| of | number | with a role | share |", "|---|---|---|---|"]
    for what in ("heads", "models"):
        low, high = x[f"{what}_interval"]
        hits = x[f"{what}_claimed"]
        out.append(
            f"| {what} | {x[what]} | {hits} | {hits / x[what]:.2%} [{low:.2%}, {high:.2%}] |"
        )
    out += ["", f"Roles claimed: {x['roles'] or 'none'}.", ""]
    out.append(
        "`interp score` first asks whether the model can do the task. So many of the random models "
        "pass: " + ", ".join(f"{k} {v}" for k, v in x["passed"].items()) + "."
    )
    y = found["movers"]
    if y:
        low, high = y["spearman_interval"]
        few, many = y["shared_interval"]
        out += ["", "## Name movers beside the ablation of single heads", ""]
        out.append(
            f"{y['model']}, {y['heads']} heads, {y['pairs']} pairs for each, on different prompts. "
            f"{y['told'].capitalize()}. Rank correlation (Spearman) over all heads "
            f"{y['spearman']:.2f} [{low:.2f}, {high:.2f}]; over the later half of the layers "
            f"{y['spearman_late']:.2f}. Of the {y['top']} first heads of both rankings "
            f"{y['shared_top']:.0f} are the same [{few:.0f}, {many:.0f}]. Intervals are bootstrap "
            "intervals over prompts. An ablation counts effects through later heads too, and a "
            "direct effect does not."
        )
        out += [
            "",
            "| head | direct effect (logits) | ablation (logits) | rank by ablation |",
        ]
        out.append("|---|---|---|---|")
        out += [
            f"| {m['head']} | {m['direct']:.2f} ± {m['sem']:.2f} | {m['ablation']:.2f} |"
            f" {m['ablation_rank']} |"
            for m in y["movers"]
        ]
    return "\n".join([*out, "", found["made"], ""])


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=40)
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=64)
    parser.add_argument("--stories", type=Path)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    start = time.time()
    path = HERE / "named_heads.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    found = {
        "false": false_findings(given.models, given.draws) if given.models else before["false"],
        "movers": movers_and_ablation(given.stories, given.pairs)
        if given.stories
        else before.get("movers"),
    }
    found["made"] = (
        f"interp {interp.__version__}, Python {platform.python_version()}, torch "
        f"{torch.__version__}, {(time.time() - start) / 60:.0f} min."
    )
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (HERE / "named_heads.md").write_text(page(found), encoding="utf-8")
    print(page(found))


if __name__ == "__main__":
    main()
