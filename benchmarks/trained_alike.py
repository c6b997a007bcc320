"""Every form of attention trained alike: what its heads come to do beside softmax heads.

    python benchmarks/trained_alike.py             # resumes where it was interrupted
    python benchmarks/trained_alike.py --limit 240 # stops after the run that passes 240 seconds

The training is that of `training/alike.py`: text, copies of random tokens and recall of pairs, in
the same order for every form. Each run (form and seed) is written to trained_alike.json when it
ends; trained_alike.md is made from that file. A run is made again when the form's code has changed.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import interp  # noqa: E402
from benchmarks.rounded import as_json  # noqa: E402
from interp.core.files import write_atomically  # noqa: E402
from interp.core.intervals import around  # noqa: E402
from interp.model.edits import zero  # noqa: E402
from training import alike, forms  # noqa: E402
from training.batches import two_copies  # noqa: E402

SOFTMAX, BOTH_WAYS = "plain_softmax", "both_ways"
TESTED, PERIOD, DOCUMENTS = 32, 8, 100
METRICS = ("induction", "previous_token", "duplicate_token", "first_token")
ROLES = ("induction", "previous_token", "sink")
COLUMNS = {
    "text": "loss on text (nats)",
    "copies": "copies (share right)",
    "recall": "recall (share right)",
    "induction heads": "induction heads",
    "previous_token heads": "previous-token heads",
    "sink heads": "sink heads",
    "unclear heads": "unclear heads",
    "sink": "first token, largest head",
    "entropy": "entropy (nats)",
    "induction": "induction, best head",
    "effect": "ablating it (nats)",
    "others": "ablating another (nats)",
    "explained": "described on text (heads)",
}


def scores(model: interp.Model, metric: str, ids: np.ndarray) -> Any:
    """Return the score of every head."""
    table = interp.score(model, [metric], ids.tolist(), null="none").to_pandas()
    return table.set_index(["layer", "head"]).score


def described(model: interp.Model) -> float:
    """Return the number of heads that a profile describes on text; NaN if it reads none."""
    if not all(site.distributes for site in model.sites):
        return float("nan")
    documents = alike.corpora()[1].rows(np.random.default_rng(5), DOCUMENTS, alike.LENGTH)
    found = interp.profile(model, documents.tolist(), effects=False, n_documents=DOCUMENTS)
    return float(len(model.sites) * model.sites[0].n_heads - found.counts().get("unclear", 0))


def measured(form: str, seed: int) -> dict[str, float]:
    """Measure a trained form on held-out rows."""
    module = alike.trained(form, seed)
    with torch.no_grad():
        return measured_of(form, module)


def measured_of(form: str, module: Any) -> dict[str, float]:
    """Measure a model on held-out rows; heads are chosen on other rows than they are judged on."""
    model = interp.load(module, name=form)  # refused unless the map is the recurrence's
    found: dict[str, float] = {}
    asked = {kind: alike.asked_rows(form, kind, TESTED) for kind in alike.ROWS}
    for kind, rows in asked.items():
        logits = module(rows.given).logits
        found[kind] = alike.accuracy(logits, rows)
        if kind == "text":
            found[kind] = float(alike.mean_loss(logits, rows))
    rng = np.random.default_rng(99)
    chosen_on, judged_on = (two_copies(rng, TESTED, PERIOD, alike.VOCAB) for _ in range(2))
    causal = forms.rule_class(form).causal
    if causal:
        given: Any = interp.repeats(model, n=TESTED, max_length=16, seed=0)
    else:  # forms that see later positions take no padding
        given = chosen_on.tolist()
    table = interp.score(model, list(METRICS), given)
    counts = interp.roles(table).counts()
    found |= {f"{role} heads": float(counts.get(role, 0)) for role in (*ROLES, "unclear")}
    best = scores(model, "induction", chosen_on).idxmax()

    def second(edits: Any = ()) -> float:
        ids = torch.tensor(judged_on)
        asked = alike.Rows(ids, ids.roll(-1, 1), torch.ones(ids.shape))
        lost = alike.losses(model.run(ids.tolist(), edits=list(edits)), asked)
        return float(lost[:, PERIOD + 1 : -1].mean())

    own = second()
    effect = {
        (s.layer, h): second([zero([(s.layer, h)])]) - own
        for s in model.sites
        for h in range(s.n_heads)
    }
    text = (asked["text"].given if causal else asked["text"].wanted).numpy()
    return found | {
        "sink": float(scores(model, "first_token", text).max()),
        "entropy": float(scores(model, "entropy", text).mean()),
        "induction": float(scores(model, "induction", judged_on)[best]),
        "effect": effect[best],
        "others": float(np.mean([v for k, v in effect.items() if k != best])),
        "identity": max(s.pattern_error for s in interp.model.check_model(model).sites),
        "explained": described(model),
    }


def found_of(runs: dict[str, Any], form: str) -> list[dict[str, float]]:
    """Return the runs of a form, by seed, that its present code made."""
    found = [runs.get(f"{form}/{seed}", {}) for seed in alike.SEEDS]
    return [run for run in found if run.get("code") == alike.settings(form)]


def complete(runs: dict[str, Any], form: str) -> list[dict[str, float]]:
    """Return the runs of a form if there is one per seed, else none."""
    found = found_of(runs, form)
    return found if len(found) == len(alike.SEEDS) else []


def intervals(values: np.ndarray) -> np.ndarray:
    """Return the t intervals of means over seeds, in which only a normal spread shows."""
    n = values.shape[1]
    return around(values.mean(1), [(values.std(1, ddof=1) / n**0.5, n - 1.0)])


def cell(values: list[float]) -> str:
    """Format the mean over seeds and the half width of its interval, if three are there."""
    if not np.isfinite(values).all():
        return "-"
    if len(values) < len(alike.SEEDS):
        return f"{np.mean(values):.2f}"
    half = intervals(np.array([values]))[0, 1] - np.mean(values)
    return f"{np.mean(values):.2f} ± {half:.2f}"


def table_of(runs: dict[str, Any], *, causal: bool) -> str:
    """Return the rows of one table: the forms that predict the next token, or the others."""
    names = [n for n in alike.forms() if forms.rule_class(n).causal == causal]
    names.sort(key=lambda n: n not in (SOFTMAX, BOTH_WAYS))
    lines = ["| attention | seeds | " + " | ".join(COLUMNS.values()) + " |", "|---" * 15 + "|"]
    for form in names:
        if found := found_of(runs, form):
            cells = [str(len(found)), *(cell([run[name] for run in found]) for name in COLUMNS)]
            lines.append(f"| {form.replace('_', ' ')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def beside_softmax(runs: dict[str, Any], column: str, *, above: bool) -> list[str]:
    """Return the forms whose paired difference to softmax lies on one side, whole interval."""
    found = []
    for form in alike.forms():
        own, base = complete(runs, form), complete(runs, SOFTMAX)
        if not own or form == SOFTMAX or not forms.rule_class(form).causal:
            continue
        apart = np.array([[a[column] - b[column] for a, b in zip(own, base, strict=True)]])
        low, high = intervals(apart)[0]
        if (low > 0) if above else (high < 0):
            found.append(form.replace("_", " "))
    return found


def reading(runs: dict[str, Any]) -> str:
    """State what the intervals of the runs allow to say."""
    number = sum(bool(complete(runs, f)) and forms.rule_class(f).causal for f in alike.forms())
    lines = [
        f"Of the {number - 1} forms with three seeds beside softmax that predict the next token, "
        "those whose paired difference to softmax (95 % t interval) lies wholly on one side. About "
        "one in forty would stand in each list by chance."
    ]
    for column, above, said in (
        ("copies", False, "copy less well"),
        ("copies", True, "copy better"),
        ("recall", False, "recall less well"),
        ("recall", True, "recall better"),
        ("text", True, "lose more on text"),
        ("text", False, "lose less on text"),
        ("induction heads", False, "have fewer induction heads"),
        ("induction heads", True, "have more induction heads"),
        ("sink", False, "put less on the first token"),
        ("sink", True, "put more on it"),
    ):
        names = beside_softmax(runs, column, above=above)
        said_of = f"- **{said}** ({len(names)}): {', '.join(names) or 'none'}."
        lines.append(textwrap.fill(said_of, 100, subsequent_indent="  "))
    return "\n".join([textwrap.fill(lines[0], 100), "", *lines[1:]])


def report(runs: dict[str, Any]) -> str:
    """Write the page from the runs."""
    seconds = sum(run["cpu_seconds"] for run in runs.values())
    worst = max(run["identity"] for run in runs.values())
    rows = alike.ROWS
    return f"""# Trained alike with different attention

Two layers of four heads, width 64, {alike.STEPS} steps of {rows["text"]} rows of text,
{rows["copies"]} rows of repeated random tokens and {rows["recall"]} rows of recall ({alike.PAIRS}
pairs of a key and a value, then the keys in another order, whose values are to be said);
{alike.LENGTH} tokens each, at most {len(alike.SEEDS)} seeds; within a seed all forms see the same
rows in the same order. Mean of the seeds ± half width of the 95 % t interval, if there are three.
Held out: {TESTED} rows of
each kind. Heads are those with this role by `interp.roles` (scores against random weights,
corrected over the heads), of 8. The best induction head is chosen on {TESTED} other rows than it
is judged on. *First token* and *entropy* are of absolute shares |M| / sum |M| on text. *Ablating*
is the rise of the loss on the second copy of `<s> r r` when z of the head is zero; *another* is the
mean of the seven others. *Described* are the heads of which `interp.profile` says more than
"unclear" on {DOCUMENTS} held-out rows of text; it reads maps whose rows are distributions. Largest
relative error of map times values against the definition, in trained models: {worst:.0e}. All runs:
{seconds / 60:.0f} minutes of one core. Made by `python benchmarks/trained_alike.py`.

## Forms that predict the next token

{table_of(runs, causal=True)}

## What it says

{reading(runs)}

## Forms that see later positions

They are trained to name hidden tokens, with softmax over all positions (*both ways*) beside them.
{alike.STEPS} steps are too few for any of them to learn copies or recall in this form, softmax
included: compare the loss on text, and what the heads do.

{table_of(runs, causal=False)}

## What it does not say

- It is no ranking of forms. Of a few settings (steps, rows, learning rate, with and without MLPs),
  the one was kept with which softmax had learned to copy with seed 0; no other form was tuned.
- A high induction score is no effect: compare the columns of ablation.
- *First token* is the largest of eight heads, chosen on the rows that it is measured on.
- Shares of signed maps spread over all entries, so a low induction score of a signed form can stand
  beside a model that copies: compare with the share of copies that is right.
- Three seeds of tiny models: the intervals are wide, and nothing here is about large ones.
"""


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Write trained_alike.json and trained_alike.md.")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds")
    limit = parser.parse_args().limit
    torch.set_num_threads(1)
    start, path = time.perf_counter(), HERE / "trained_alike.json"
    runs = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for seed in alike.SEEDS:
        for form in alike.forms():
            name, code = f"{form}/{seed}", alike.settings(form)
            if runs.get(name, {}).get("code") == code or time.perf_counter() - start > limit:
                continue
            before = time.process_time()
            found = measured(form, seed)
            runs[name] = found | {"cpu_seconds": time.process_time() - before, "code": code}
            print(name, {k: round(v, 3) for k, v in found.items()}, flush=True)
            write_atomically(path, as_json(runs).encode())
    write_atomically(HERE / "trained_alike.md", report(runs).encode())


if __name__ == "__main__":
    main()
