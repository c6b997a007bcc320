"""When the heads of the bundled model formed: scores over moments of its training.

    python benchmarks/emergence.py [--train] [--keep FOLDER] [--from FOLDER]

Scores every head at the moments whose checkpoints come with the package (four in float16, and the
model itself) with the metrics below, n prompts each, beside the loss on the second copy of random
tokens. This takes less than a minute. The figures of the other moments, and the trained weights
that they were measured on, stay as the last run with --train wrote them; the scores of the packaged
checkpoints are compared with that run's.

With --train, bundled:induction is trained again from its recipe (see training/emergence.py), and
all moments are scored. Every checkpoint is compared with the record of the bundled training, which
was measured without the toolkit, and the last one's weights with the bundled weights: where they
agree, the run was the same one, and the checkpoints are those of the bundled model. With --keep all
are written (1.4 MB each), with --from read instead of trained.
Writes benchmarks/emergence.json, .md and .svg.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Iterator
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import interp
from interp import bundled
from interp.causal import repeats_task
from training import measure
from training.batches import Corpus, two_copies
from training.emergence import STEPS, checkpoints
from training.text import paragraphs
from training.train import PERIODS, RECIPES

HERE = Path(__file__).parent
METRICS = ("previous_token", "induction", "retrieval", "sink")
ALIKE = 0.002  # float16 weights differ by less from the trained ones
# One task at every step: by default a model is asked what it answers best, and at first nothing.
ASKED = {"retrieval": "retrieval:task=ids"}
# Okabe and Ito's colours, and dashes, so that a grey print can be read.
LOOKS = {
    "previous_token": ("#0072B2", ""),
    "induction": ("#D55E00", "6 3"),
    "retrieval": ("#009E73", "2 2"),
    "sink": ("#CC79A7", "8 3 2 3"),
}
WIDTH, HEIGHT, LEFT, TOP = 640, 320, 48, 40


def moments(
    seed: int, source: Path | None, keep: Path | None
) -> Iterator[tuple[int, Any, str | None]]:
    """Step, model, and the hash of its weights file where there is one."""
    if source is not None:
        for step in STEPS:
            folder = source / f"step-{step}"
            if not folder.is_dir():
                raise SystemExit(f"{folder} does not exist; train without --from")
            module = transformers.LlamaForCausalLM.from_pretrained(folder).eval()
            yield step, module, weights_of(folder)
        return
    for step, module in checkpoints(RECIPES["induction"], seed):
        if keep is not None:
            module.save_pretrained(keep / f"step-{step}")
        yield step, module, None if keep is None else weights_of(keep / f"step-{step}")


def packaged() -> Iterator[tuple[int, Any]]:
    """Step and model of the checkpoints that come with the package, in float32."""
    for step, folder in bundled.checkpoints("induction").items():
        load = transformers.LlamaForCausalLM.from_pretrained
        yield step, load(folder, dtype=torch.float32).eval()


def packaged_moments(found: dict[str, Any], tokenizer: Any, ids: Any, record: Any) -> None:
    """Score the packaged checkpoints, and put them in the place of the same moments in `found`."""
    moments = {x["step"]: x for x in found["moments"]}
    trained = found.setdefault("trained", {str(step): x for step, x in moments.items()})
    apart, gaps = dict.fromkeys(METRICS, 0.0), {}
    for step, module in packaged():
        now = look(step, module, tokenizer)
        for metric in METRICS:
            before = np.array(trained[str(step)][metric]["score"])
            apart[metric] = max(
                apart[metric], float(np.abs(before - np.array(now[metric]["score"])).max())
            )
        gap = difference(step, module, record, ids)
        if gap is not None:
            gaps[str(step)] = round(gap, 4)
        moments[step] = now
        print(step, now["second_copy_loss"], flush=True)
    found["moments"] = [moments[step] for step in sorted(moments)]
    found["packaged"] = {
        "steps": [*bundled.checkpoints("induction")],
        "largest_difference_from_the_trained": {m: round(x, 4) for m, x in apart.items()},
        "largest_difference_from_the_record": gaps,
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """What a run was made with."""
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def weights_of(folder: Path) -> str:
    """sha256 of a checkpoint's file of weights."""
    return sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def look(step: int, module: Any, tokenizer: Any) -> dict[str, Any]:
    """All scores of one moment, `[layer][head]`, with their errors, and the loss on copies."""
    # with its tokenizer, which says what tokens are special and so never drawn
    model = interp.load(module, name=f"step {step}", tokenizer=tokenizer)
    table = interp.score(model, [ASKED.get(m, m) for m in METRICS], null="none")
    task = repeats_task(model)
    assert isinstance(task.prompts, interp.Prompts)
    loss = 0.0
    with torch.no_grad():
        for i, ids in enumerate(task.prompts.ids):
            logits = model.run(interp.Prompts((ids,)))[0]
            loss += float(task.values(logits[list(task.positions[i])], [i]))
    found: dict[str, Any] = {"step": step, "second_copy_loss": round(loss / len(task), 4)}
    for metric in METRICS:
        for column in ("score", "sem"):
            values = np.round(table.matrix(ASKED.get(metric, metric), column=column), 4)
            found.setdefault(metric, {})[column] = values.tolist()
    return found


def record_prompts(record: dict[str, Any], tokenizer: Any) -> torch.Tensor:
    """The copies on which the bundled training looked at its heads, drawn as it drew them."""
    recipe, seed = record["recipe"], record["seed"]
    exam = np.random.default_rng([seed, 1])
    Corpus(paragraphs(1000, seed + 1), tokenizer).rows(exam, 64, recipe["length"])
    return torch.from_numpy(two_copies(exam, 64, PERIODS[0], record["vocab"]))


def difference(step: int, module: Any, record: dict[str, Any], ids: torch.Tensor) -> float | None:
    """Largest difference of any head's two scores from those in the record of that step."""
    told = {row["step"]: row for row in record["emergence"]}.get(step)
    if told is None:
        return None
    found = measure.stripes(module, ids, PERIODS[0])
    return max(
        float(np.abs(np.round(x, 4) - np.array(told[name])).max()) for name, x in found.items()
    )


def drawing(looks: list[dict[str, Any]]) -> str:
    """Best head of each metric against the step, with one standard error; the loss below."""
    steps = [x["step"] for x in looks]
    last = max(steps)

    def x_of(step: float) -> float:
        return round(LEFT + (WIDTH - LEFT - 12) * step / last, 1)

    def panel(y0: float, high: float, lines: list[str], title: str, unit: str) -> list[str]:
        out = [f'<text x="{LEFT}" y="{y0 - 10}" font-weight="bold">{escape(title)}</text>']
        for share in (0, 0.5, 1):
            y = y0 + HEIGHT * (1 - share)
            out.append(f'<line x1="{LEFT}" x2="{WIDTH - 12}" y1="{y}" y2="{y}" stroke="#ddd"/>')
            out.append(
                f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{share * high:g}</text>'
            )
        for step in range(0, last + 1, 500):
            y = y0 + HEIGHT + 16
            out.append(f'<text x="{x_of(step)}" y="{y}" text-anchor="middle">{step}</text>')
        out.append(f'<text x="{WIDTH - 12}" y="{y0 + HEIGHT + 32}" text-anchor="end">{unit}</text>')
        return out + lines

    curves, legend = [], []
    for at, metric in enumerate(METRICS):
        colour, dash = LOOKS[metric]
        score = [np.array(x[metric]["score"]) for x in looks]
        best = [np.unravel_index(s.argmax(), s.shape) for s in score]
        value = [float(s[b]) for s, b in zip(score, best, strict=True)]
        error = [float(np.array(x[metric]["sem"])[b]) for x, b in zip(looks, best, strict=True)]
        points = " ".join(
            f"{x_of(s)},{TOP + HEIGHT * (1 - v):.1f}" for s, v in zip(steps, value, strict=True)
        )
        style = f'stroke="{colour}" stroke-width="2"'
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        curves.append(f'<polyline points="{points}" fill="none" {style}{dashes}/>')
        for s, v, e, b in zip(steps, value, error, best, strict=True):
            x, low, high = x_of(s), TOP + HEIGHT * (1 - v + e), TOP + HEIGHT * (1 - v - e)
            told = f"{metric}, step {s}: L{b[0]}H{b[1]} {v:.3f} ± {e:.2g}"
            curves.append(
                f'<path d="M{x} {low:.1f}V{high:.1f}" {style}><title>{told}</title></path>'
                f'<circle cx="{x}" cy="{TOP + HEIGHT * (1 - v):.1f}" r="3" fill="{colour}">'
                f"<title>{told}</title></circle>"
            )
        x = LEFT + 150 * at
        legend.append(
            f'<line x1="{x}" x2="{x + 26}" y1="12" y2="12" {style}{dashes}/>'
            f'<text x="{x + 31}" y="16">{metric.replace("_", " ")}</text>'
        )
    below = TOP + HEIGHT + 76
    most = 6
    loss = " ".join(
        f"{x_of(x['step'])},{below + HEIGHT * (1 - min(x['second_copy_loss'], most) / most):.1f}"
        for x in looks
    )
    lower = [f'<polyline points="{loss}" fill="none" stroke="#000" stroke-width="2"/>']
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}"'
            f' height="{below + HEIGHT + 44}" font-family="sans-serif" font-size="11">'
            '<rect width="100%" height="100%" fill="#fff"/>',
            *panel(TOP, 1, curves, "Score of the best head, ± standard error", "training step"),
            *legend,
            *panel(below, most, lower, "Loss on the second copy (nats per token)", "training step"),
            "</svg>\n",
        ]
    )


def told(found: dict[str, Any]) -> str:
    """The figures as Markdown, and how to have them again."""
    names = [m.replace("_", " ") for m in METRICS]
    lines = [
        "# When the heads of bundled:induction formed",
        "",
        "Score of the best head (and which) at moments of training, beside the loss on the second",
        "copy of random tokens, in nats per token. `python benchmarks/emergence.py` scores the",
        "moments whose checkpoints come with the package (steps 600 to 800 in float16, and the",
        "model itself) in less than a minute; `interp compare checkpoints bundled:induction` "
        "draws their",
        "curves with change points. With `--train` it trains the model again from its recipe",
        "(about five minutes on an idle core) and scores all moments. Training gives each",
        "checkpoint again bit for bit where versions and machine are the same.",
        "",
        "- weights after the last step equal to the bundled ones:"
        f" {found['same_weights_at_the_end']}",
        "- largest difference of any head's score from the bundled training's own record:"
        f" {max(found['largest_difference_from_the_record'].values()):g}",
        *told_packaged(found.get("packaged")),
        "",
        f"| step | loss | {' | '.join(names)} |",
        f"| --- | --- |{' --- |' * len(names)}",
    ]
    for x in found["moments"]:
        cells = []
        for metric in METRICS:
            score = np.array(x[metric]["score"])
            layer, head = np.unravel_index(score.argmax(), score.shape)
            cells.append(f"{score.max():.3f} (L{layer}H{head})")
        star = "*" if x["step"] in found.get("packaged", {}).get("steps", ()) else ""
        lines.append(f"| {x['step']}{star} | {x['second_copy_loss']:.3f} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", "![scores over training](emergence.svg)", ""])


def told_packaged(packaged: dict[str, Any] | None) -> list[str]:
    """How far the packaged checkpoints are from the training they were taken from."""
    if packaged is None:
        return []
    apart = packaged["largest_difference_from_the_trained"]
    recorded = max(packaged["largest_difference_from_the_record"].values())
    told = ", ".join(f"{metric.replace('_', ' ')} {x:g}" for metric, x in apart.items())
    lines = [
        "- packaged checkpoints (rows with *): largest difference of a head's score from the",
        f"  record {recorded:g}, from the run with `--train`: {told}",
    ]
    if other := [metric for metric, x in apart.items() if x > ALIKE]:
        lines.append(
            f"- {', '.join(other)} has changed since the run with `--train`: its rows with * are"
            " comparable only with each other"
        )
    return lines


def write(found: dict[str, Any]) -> None:
    """Write the three files."""
    (HERE / "emergence.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (HERE / "emergence.md").write_text(told(found), encoding="utf-8")
    (HERE / "emergence.svg").write_text(drawing(found["moments"]), encoding="utf-8")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Scores over the training of bundled:induction.")
    parser.add_argument("--train", action="store_true", help="train again, and score all moments")
    parser.add_argument("--keep", type=Path, help="write the checkpoints here")
    parser.add_argument("--from", dest="source", type=Path, help="checkpoints written with --keep")
    chosen = parser.parse_args()
    record = json.loads((bundled.path("induction") / "training.json").read_text())
    tokenizer = transformers.AutoTokenizer.from_pretrained(bundled.path("induction"))
    transformers.utils.logging.disable_progress_bar()
    ids = record_prompts(record, tokenizer)
    if not (chosen.train or chosen.source):
        found = json.loads((HERE / "emergence.json").read_text(encoding="utf-8"))
        packaged_moments(found, tokenizer, ids, record)
        write(found)
        return
    looks, hashes, gaps = [], {}, {}
    for step, module, weights in moments(record["seed"], chosen.source, chosen.keep):
        looks.append(look(step, module, tokenizer))
        gap = difference(step, module, record, ids)
        if gap is not None:
            gaps[str(step)] = round(gap, 4)
        if weights is not None:
            hashes[str(step)] = weights
        if step == record["recipe"]["steps"]:
            last = {k: v.cpu() for k, v in module.state_dict().items()}
        best = {m: float(np.max(looks[-1][m]["score"])) for m in METRICS}
        print(step, looks[-1]["second_copy_loss"], best, flush=True)
    kept = transformers.LlamaForCausalLM.from_pretrained(bundled.path("induction")).state_dict()
    found = {
        "model": "bundled:induction",
        "seed": record["seed"],
        "metrics": list(METRICS),
        "same_weights_at_the_end": all(torch.equal(kept[k], last[k].half().float()) for k in kept),
        "largest_difference_from_the_record": gaps,
        "sha256_of_checkpoints": hashes,
        "versions": versions(),
        "moments": looks,
    }
    write(found)


if __name__ == "__main__":
    main()
