"""What people would use instead, in one run: `python -m benchmarks.beside --peers FOLDER`.

A GPT-2 of the small size with random weights is written to a folder, and every package computes
the rows of the table as its documentation does them, in an environment of its own, which is made
from its file in `benchmarks/peers` where FOLDER lacks it. Packages take turns, several times over,
one process each, one thread. A package that cannot be installed or fails is a row with its error.
Writes beside.json and beside.md, anew after each turn.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rounded import as_json

HERE = Path(__file__).parent
PEERS = {  # script: the name in the table, and its environment; None is this one
    "beside_interp": ("interp", None),
    "beside_transformer_lens": ("TransformerLens 4.3.0", None),
    "beside_nnterp": ("nnsight 0.6.3 with nnterp 1.3.0", "nnterp"),
    "beside_interpkit": ("InterpKit 0.7.0", "interpkit"),
    "beside_captum": ("captum 0.9.0", "captum"),
    "beside_inseq": ("inseq 0.7.1", "inseq"),
    "beside_auto_circuit": ("auto-circuit 1.0.1", "auto_circuit"),
}
ROWS = {
    "loading": "imports and loading",
    "induction": "induction score of all heads, 4 prompts of 128 tokens",
    "first token of a long prompt": "attention on the first token, 1,024 tokens",
    "ablation": "each of the 144 heads set to zero, 2 prompts of 16 tokens",
    "attribution patching": "attribution patching of heads, 2 pairs of 16 tokens",
    "edges": "attribution patching of edges, 2 pairs of 16 tokens",
    "direct attribution": "direct logit attribution of heads, 32 tokens",
    "lens": "logit lens at all depths and positions, 32 tokens",
    "integrated gradients": "integrated gradients, 20 steps, 32 tokens",
    "rollout": "attention rollout, 32 tokens",
}
SLOWER = {  # what interp does more, printed where a package is faster
    "loading": "a run on a few tokens, which checks that every head is read as the model computes "
    "it.",
    "attribution patching": "the effect of the embedding and of every MLP beside that of heads.",
    "direct attribution": "a second unembedding, of 8 positions, which checks that norm and matrix "
    "give the model's logits; MLPs, embedding and biases, whose sum with the heads is compared "
    "with the logit.",
    "lens": "the rank of the target at every depth and position, and the words of the five "
    "likeliest tokens.",
    "integrated gradients": "a pass on the input and one on the baseline, which give the residual; "
    "8 steps at a time (InterpKit 32).",
    "rollout": "a pass of its own for the value of the target, which the result states.",
}
ONCE = {"beside_auto_circuit"}  # takes minutes, and stands far from the others
LIMIT = 900  # seconds for all rows of one package
NOT_RUN = {
    "circuit-tracer": "reads transcoders trained for a model, and random weights have none",
    "kvpress": "has no GPT-2 (but Llama, Mistral, Phi 3, Qwen and Gemma 3), and shortens caches, "
    "which no row of this table is about",
}


def write_model(folder: Path) -> None:
    """Write the model, and a tokenizer whose words are w0, w1, ...: one token each."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = GPT2Config()
    GPT2LMHeadModel(config).save_pretrained(folder)
    end = "<|endoftext|>"
    vocabulary = {f"w{i}": i for i in range(config.vocab_size - 1)} | {end: config.vocab_size - 1}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=end))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    marks = {f"{name}_token": end for name in ("bos", "eos", "unk", "pad")}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks).save_pretrained(folder)
    at = folder / "tokenizer_config.json"  # older releases do not know the newest class
    about = json.loads(at.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    at.write_text(json.dumps(about))


def inputs(seed: int) -> dict[str, Any]:
    """Draw the token ids of all rows."""
    draw = random.Random(seed)

    def words(n: int) -> list[int]:
        return draw.sample(range(50256), n)

    clean = [words(16) for _ in range(2)]
    return {
        "repeats": [half * 2 for half in (words(64) for _ in range(4))],
        "long": [words(1024)],
        "clean": clean,
        "corrupted": [[*ids[:6], *words(4), *ids[10:]] for ids in clean],
        "answers": words(2),
        "wrong": words(2),
        "text": [words(32)],
    }


def environment(folder: Path, name: str) -> Path:
    """Return the Python of an environment, which is made if it is missing."""
    python = folder / name / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", folder / name], check=True)
        asked = ["-m", "pip", "install", "-q", "-r", HERE / "peers" / f"{name}.txt"]
        subprocess.run([python, *asked], check=True)
    return python


def run(script: str, python: Path, at: Path) -> dict[str, Any]:
    """Run one script; return its rows, or its error under the row of loading."""
    out = at / f"{script}.json"
    out.unlink(missing_ok=True)
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if python == Path(sys.executable):
        variables["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    command = [python, "-W", "ignore", HERE / "peers" / f"{script}.py", at / "model"]
    try:
        done = subprocess.run(
            [*command, at / "inputs.json", out],
            check=False,
            cwd=at,
            env=variables,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        error = (done.stderr.strip().splitlines() or ["no message"])[-1][:200]
    except subprocess.TimeoutExpired:
        error = f"more than {LIMIT} s"
    return json.loads(out.read_text()) if out.is_file() else {"loading": {"error": error}}


def difference(ours: Any, theirs: Any) -> float:
    """Return the largest difference as a share of our largest value."""
    if isinstance(ours, dict):
        names = sorted(ours.keys() & theirs.keys())
        ours, theirs = ([x[name] for name in names] for x in (ours, theirs))
    a, b = np.ravel(ours), np.ravel(theirs)
    return float(np.abs(a - b).max() / np.abs(a).max()) if a.shape == b.shape else float("nan")


def summary(runs: list[dict[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return a record per row and package: medians over the runs, and ratios within each."""
    records: list[dict[str, Any]] = []
    for row in ROWS:
        for script, (name, _) in PEERS.items():
            present = [one for one in runs if row in one.get(script, {})]
            if not present:
                continue
            found = [one[script][row] for one in present]
            errors = [x["error"] for x in found if "error" in x]
            record = {"row": row, "package": name, "error": errors[0] if errors else None}
            record["runs"] = len(found)
            if not errors:
                own = [one["beside_interp"][row] for one in present]
                pairs = zip(found, own, strict=True)
                ratios = [theirs["seconds"] / ours["seconds"] for theirs, ours in pairs]
                record |= {
                    "seconds": statistics.median(x["seconds"] for x in found),
                    "ratio": statistics.median(ratios),
                    "ratios": [min(ratios), max(ratios)],
                    "mib": statistics.median(x["mib"] for x in found),
                }
                if "values" in own[0] and script != "beside_interp":
                    record["difference"] = difference(own[0]["values"], found[0]["values"])
            records.append(record)
    return records


def _size(gap: float) -> str:
    return "another quantity" if np.isnan(gap) else f"{gap:.0e}"


def page(found: dict[str, Any]) -> str:
    """Write the page."""
    lines = [
        "# Beside other packages",
        "",
        "GPT-2 of the small size (124 million weights, random), float32, one thread, "
        f"{found['cpu']}. Runs: {found['runs']}, in which the packages took turns (auto-circuit in "
        "the first alone); medians. Seconds are processor time of the second call (of the first "
        "where it takes more than 10 s). "
        "*Times ours* is the ratio within each run, in brackets its smallest and largest value; "
        "above 1 interp is faster. Memory is what the first call adds to the largest resident size "
        "(of loading: the whole). Differences are from interp's numbers, as a share of the "
        "largest. Made by `python -m benchmarks.beside`.",
    ]
    for row, title in ROWS.items():
        lines += ["", f"## {title[0].upper()}{title[1:]}", ""]
        lines += ["| package | seconds | times ours | MiB | largest difference |"]
        lines += ["|---|---|---|---|---|"]
        rows = [x for x in found["records"] if x["row"] == row]
        for x in rows:
            if x["error"]:
                why = x["error"].replace("|", "\\|")
                lines.append(f"| {x['package']} | failed: {why} | | | |")
                continue
            ratio = "1" if x["package"] == "interp" else f"{x['ratio']:.2f}"
            if x["runs"] > 1 and x["package"] != "interp":
                ratio += " ({:.2f} to {:.2f})".format(*x["ratios"])
            gap = "" if "difference" not in x else _size(x["difference"])
            seconds, mib = f"{x['seconds']:.2f}", f"{max(x['mib'], 0):,.0f}"
            lines.append(f"| {x['package']} | {seconds} | {ratio} | {mib} | {gap} |")
        if row in SLOWER and any(x.get("ratio", 1) < 1 for x in rows):
            lines += ["", f"What interp computes here besides: {SLOWER[row]}"]
    lines += ["", "## Not run", ""]
    lines += [f"- {name} {why}." for name, why in NOT_RUN.items()]
    return "\n".join([*lines, "", f"Versions: {found['versions']}.", ""])


def main() -> None:
    """Measure, and write the record and the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peers", type=Path, required=True, help="folder of the environments")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    import torch
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        write_model(at / "model")
        (at / "inputs.json").write_text(json.dumps(inputs(0)))
        pythons = {
            script: environment(given.peers.resolve(), name) if name else Path(sys.executable)
            for script, (_, name) in PEERS.items()
        }
        runs: list[dict[str, Any]] = []
        for number in range(given.runs):
            scripts = [script for script in PEERS if not (number and script in ONCE)]
            runs.append({script: run(script, pythons[script], at) for script in scripts})
            found = {
                "runs": len(runs),
                "cpu": platform.machine(),
                "versions": f"torch {torch.__version__}, transformers {transformers.__version__} "
                "for interp and TransformerLens; those of the others are in `benchmarks/peers`",
                "records": summary(runs),
            }
            (given.out / "beside.json").write_text(as_json(found))
            (given.out / "beside.md").write_text(page(found))


if __name__ == "__main__":
    main()
