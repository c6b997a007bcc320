"""Searches for removable heads against exact truth: every subset of a model's heads or kv groups.

    python benchmarks/gates.py kv_groups  # all 256 subsets of 8 kv groups
    python benchmarks/gates.py heads      # all 65,536 subsets of 16 heads, a few minutes
    python benchmarks/gates.py            # both

Each updates its part of gates.json and writes gates.md beside this file. Every search
finds an order on one half of the prompts. For every number of removed heads its loss on the other
half is compared with that of the best subset of this size there (regret). The best subset on the
prompts of the search, judged on the others, is what a perfect search would reach.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rounded import as_json

import interp
from interp.causal import repeats_task, search_curves
from interp.causal.game.game import Game
from interp.causal.gating.learn import halves
from interp.causal.gating.units import GatedUnits, layer_matched_sets, selected
from interp.causal.task import Task
from interp.core.statistics import percentile_interval, prediction_band
from interp.model.model import Model

METHODS = ("ablation", "gate_gradient", "aumann_shapley", "shapley", "greedy", "pairs", "gates")
HERE = Path(__file__).parent
DRAWS = 4000
CHECKED = 64  # subsets whose loss is also measured by a game
INTRO = """# Searches for removable heads against exact truth

Loss on the second copy of random tokens of `bundled:induction`. All subsets were evaluated, those
of heads by a second implementation, which agreed with `Game` on {checked} random subsets. Regret is
the loss above that of the best subset of the same size on the judged prompts, in nats per token. A
search on other prompts cannot always reach 0, as the exhaustive search shows. "On its own prompts"
is the mean regret over all sizes on the prompts of the search, where the exhaustive search is 0 by
definition. Made by `python benchmarks/gates.py`.
"""


def every_value(game: Game) -> np.ndarray:
    """Loss of every subset, mean over prompts; bit i of the index is player i being removed."""
    n = len(game)
    found = []
    for part in torch.arange(2**n).split(4096):
        found.append(game.values(gates_of(part, n)).mean(1).numpy())
    return np.concatenate(found)


def gates_of(subsets: Any, n: int) -> torch.Tensor:
    """Gates of subsets, `[subset, player]`: 0 where bit i of the number is set."""
    return 1 - ((torch.as_tensor(subsets)[:, None] >> torch.arange(n)) & 1).double()


@torch.no_grad()
def every_head_subset(model: Model, task: Task, parts: list[list[int]]) -> np.ndarray:
    """Loss of every subset of heads of a model of two Llama layers, mean over each part's prompts.

    The 256 subsets of layer 0 take one forward pass each. For each, the outputs of the single heads
    of layer 1 are summed under the 256 subsets of layer 1, at the positions that the loss reads.

    Returns:
        `[part, subset]`, numbered as in `every_value`.
    """
    first, second = model.module.model.layers
    (n0, n1), d = (s.n_heads for s in model.sites), model.sites[0].d_v
    ids = [list(x) for x in task.prompts.ids]
    width = max(map(len, ids))
    padded = torch.tensor([x + [0] * (width - len(x)) for x in ids])  # causal: padding is not seen
    prompt, at = zip(*[(i, p) for i, ps in enumerate(task.positions) for p in ps], strict=True)
    target = torch.tensor([ids[i][p + 1] for i, p in zip(prompt, at, strict=True)])
    weight = torch.tensor(
        [[(i in part) / len(task.positions[i]) / len(part) for i in prompt] for part in parts]
    )
    wide = gates_of(range(2**n1), n1).float()
    seen: dict[str, torch.Tensor] = {}
    gate = torch.ones(n0 * d)
    hooks = [
        first.self_attn.o_proj.register_forward_pre_hook(lambda m, a: (a[0] * gate,)),
        second.self_attn.o_proj.register_forward_pre_hook(lambda m, a: seen.update(z=a[0])),
        second.register_forward_pre_hook(lambda m, a: seen.update(x=a[0])),
    ]
    out = second.self_attn.o_proj.weight.T.reshape(n1, d, -1)
    found = torch.empty(len(parts), 2**n1, 2**n0)  # bits of layer 0 are the lowest
    for number, row in enumerate(gates_of(range(2**n0), n0).float()):
        gate = row.repeat_interleave(d)
        model.module(input_ids=padded)
        z = seen["z"][prompt, at].unflatten(-1, (n1, d))
        each = torch.einsum("rhd,hdm->hrm", z, out)
        x = seen["x"][prompt, at] + torch.einsum("sh,hrm->srm", wide, each)
        x = x + second.mlp(second.post_attention_layernorm(x))
        logits = model.module.lm_head(model.module.model.norm(x))
        right = logits.gather(-1, target.expand(len(x), -1)[..., None])[..., 0]
        found[:, :, number] = weight @ (logits.logsumexp(-1) - right).T
    for hook in hooks:
        hook.remove()
    return found.flatten(1).double().numpy()


def measured(players: str) -> dict[str, Any]:
    """Enumerate all subsets, run the searches, and return losses and regrets by size."""
    model = interp.load("bundled:induction")
    task = repeats_task(model, n=16 if players == "heads" else 8, max_length=10)
    first, second = halves(task, 0)
    start = time.process_time()
    games = [
        Game(model, selected(task, which), max_tokens=4096, players=players)
        for which in (first, second)
    ]
    n = len(games[0])
    if players == "heads":
        fit, judged = every_head_subset(model, task, [first, second])
        some = np.random.default_rng(0).integers(0, 2**n, CHECKED)
        for game, found in zip(games, (fit, judged), strict=True):
            gap = abs(game.values(gates_of(some, n)).mean(1).numpy() - found[some]).max()
            assert gap < 1e-4, gap
    else:
        fit, judged = (every_value(game) for game in games)
    seconds = time.process_time() - start
    print(f"{2**n:,} subsets in {seconds:.0f} s", flush=True)
    rates = band_rates(games[0], judged) if players == "heads" else {}
    size = np.array([i.bit_count() for i in range(2**n)])
    best = [int(np.flatnonzero(size == k)[judged[size == k].argmin()]) for k in range(n + 1)]
    fitted = [int(np.flatnonzero(size == k)[fit[size == k].argmin()]) for k in range(n + 1)]
    place = {label: i for i, label in enumerate(games[0].players.labels)}
    rows = {}
    for method in METHODS:
        start = time.process_time()
        [curve] = search_curves(model, task, [method], players=players, n_random=2)
        taken = time.process_time() - start
        sets = [sum(1 << place[x] for x in curve.removed[:k]) for k in range(n + 1)]
        gap = max(abs(curve.value - judged[sets]))
        assert gap < 1e-4, (method, gap)  # the curve and the enumeration agree
        rows[method] = row_of(sets, fit, judged, fitted, best) | {"seconds": round(taken, 1)}
    rows["exhaustive search"] = row_of(fitted, fit, judged, fitted, best)
    return {
        "players": players,
        "task": repr(task),
        "found_on": first,
        "judged_on": second,
        "subsets": 2**n,
        "seconds": round(seconds),
        "unit": task.unit,
        "best": judged[best].tolist(),
        "random": [float(judged[size == k].mean()) for k in range(n + 1)],
        "random_on_its_prompts": [
            float(fit[size == k].mean() - fit[fitted[k]]) for k in range(n + 1)
        ],
        "methods": rows,
        "band_rates": rates,
        "made": {k: games[0].about()[k] for k in ("task_hash", "kind")} | curve.made["versions"],
    }


def row_of(
    sets: list[int], fit: np.ndarray, judged: np.ndarray, fitted: list[int], best: list[int]
) -> dict[str, Any]:
    """Loss and regret of one set of every size."""
    return {
        "loss": judged[sets].tolist(),
        "regret": (judged[sets] - judged[best]).tolist(),
        "regret_on_its_prompts": (fit[sets] - fit[fitted]).tolist(),
    }


def band_rates(game: Game, values: np.ndarray) -> dict[str, list[float]]:
    """Share of random kept sets outside the band of their matched random sets, by number of sets.

    Each draw is a kept set with a random number of heads in every layer, whose band is that of
    further random sets with as many heads in every layer: nothing is better than chance here, so
    the share should be 0.05. With it the share for the middle 95 % of the sets.
    """
    rng = np.random.default_rng(29)
    units = GatedUnits.of(game.model, "heads", "none")
    n = len(game)
    found = {}
    for n_random in (39, 50, 100):
        outside = []
        for _ in range(DRAWS):
            kept = (rng.random(n) < rng.random()).astype(float)
            sets = layer_matched_sets(units, kept, n_random + 1, rng).numpy()
            x = values[((1 - sets) @ (1 << np.arange(n))).astype(int)]
            bands = prediction_band(x[1:]), percentile_interval(x[1:])
            outside.append([not low <= x[0] <= high for low, high in bands])
        found[str(n_random)] = np.mean(outside, 0).tolist()
    return found


def table(about: dict[str, Any]) -> list[str]:
    """Markdown of one enumeration."""
    best, random = np.array(about["best"]), np.array(about["random"])
    n = len(best) - 1
    counts = sorted({n * k // 8 for k in range(1, 7)})
    name = about["players"].replace("_", " ")
    lines = [
        f"## All {about['subsets']:,} subsets of {n} {name}",
        "",
        f"Each search used {len(about['found_on'])} prompts; numbers are of "
        f"{len(about['judged_on'])} others. The enumeration took {about['seconds']} s of one core.",
        "",
        "| search | "
        + " | ".join(f"{k} removed" for k in counts)
        + " | mean of all sizes | on its own prompts | seconds |",
        "|---" * (len(counts) + 4) + "|",
    ]

    def line(name: str, regret: Any, own: Any, seconds: Any) -> str:
        cells = [f"{regret[k]:.3f}" for k in counts]
        mean = "" if own is None else f"{np.mean(own):.3f}"
        return f"| {name} | {' | '.join(cells)} | {np.mean(regret):.3f} | {mean} | {seconds} |"

    for method, row in about["methods"].items():
        own, seconds = row["regret_on_its_prompts"], row.get("seconds", about["seconds"])
        lines.append(line(method, row["regret"], own, seconds))
    lines.append(line("mean of all subsets", random - best, about["random_on_its_prompts"], ""))
    lines += [line("loss of the best subset", best, None, ""), ""]
    if about["band_rates"]:
        lines += [
            "## Calibration of the band of random sets",
            "",
            "The held-out value of gates and certificates comes with a 95 % band of random sets "
            f"with as many heads per layer. For {DRAWS:,} random kept sets of the enumeration, "
            "the share outside their own band, which should be 0.05 (simulation error "
            f"{(0.05 * 0.95 / DRAWS) ** 0.5:.3f}) or less, since sets tie where a layer keeps all, "
            "none or nearly all of its heads:",
            "",
            "| random sets | outside the band | outside the middle 95 % of the sets |",
            "|---|---|---|",
        ]
        rates = about["band_rates"].items()
        lines += [f"| {k} | {band:.3f} | {middle:.3f} |" for k, (band, middle) in rates]
        lines.append("")
    return lines


def main(which: str | None = None) -> None:
    path = HERE / "gates.json"
    told = json.loads(path.read_text()) if path.exists() else {}
    for players in ("kv_groups", "heads") if which is None else (which,):
        told[players] = measured(players)
        path.write_text(as_json(told), encoding="utf-8")
    parts = [line for key in ("heads", "kv_groups") if key in told for line in table(told[key])]
    text = INTRO.format(checked=CHECKED) + "\n" + "\n".join(parts).rstrip()
    (HERE / "gates.md").write_text(text + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:2])
