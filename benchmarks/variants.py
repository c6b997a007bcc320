"""Every attention variant of the zoo: error of its map, what detectors say, and its time.

python benchmarks/variants.py       writes variants.json and variants.md
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import interp  # noqa: E402
from benchmarks.rounded import as_json  # noqa: E402
from interp.core.files import write_atomically  # noqa: E402
from training import forms  # noqa: E402

METRICS = ("previous_token", "duplicate_token", "first_token", "entropy")
TOKENS, PROMPTS = 32, 8


def prompts() -> list[list[int]]:
    """Return random tokens that are said twice."""
    half = torch.randint(4, 60, (PROMPTS, TOKENS // 2), generator=torch.Generator().manual_seed(0))
    return torch.cat([half, half], 1).tolist()


def measured(name: str) -> dict[str, Any]:
    """Load one variant, and score it."""
    begin = time.process_time()
    model = forms.load(name)
    loaded = time.process_time() - begin
    sites = interp.model.check_model(model).sites
    begin = time.process_time()
    frame: Any = interp.score(model, list(METRICS), prompts(), null="none").to_pandas()
    spent = time.process_time() - begin
    rule = forms.rule_class(name)
    best = frame.groupby("metric")["score"]
    return {
        "variant": name,
        "row_sum": rule.row_sum,
        "signed": rule.signed,
        "causal": rule.causal,
        "map": max(s.pattern_error for s in sites),
        "result": max(s.result_error or 0.0 for s in sites),
        **{m: float(best.mean()[m] if m == "entropy" else best.max()[m]) for m in METRICS},
        "load": round(loaded, 2),
        "score": round(spent, 2),
    }


def main() -> None:
    """Measure every variant, and write the table."""
    measured("plain_softmax")  # compiles
    rows = [measured(name) for name in forms.variant_names("text")]
    write_atomically(HERE / "variants.json", as_json(rows).encode())
    write_atomically(HERE / "variants.md", page(rows).encode())


def page(rows: list[dict[str, Any]]) -> str:
    """Format the table."""
    worst = max(max(r["map"], r["result"]) for r in rows)
    lines = [
        "# Attention variants",
        "",
        f"{len(rows)} forms of attention, as models of two layers of 4 heads, weights at random;"
        f" {PROMPTS} prompts of {TOKENS} tokens, the second half copies the first. *map*: largest"
        " relative error of map times values against what the layer computes; *results*: of the sum"
        " of the heads' results against the output. Scores are of absolute shares of each row: the"
        " largest of all heads, for entropy the mean, in nats. *loading* (with its checks) and"
        f" *scoring*: seconds of processor time. Largest error: {worst:.0e}. Weights are random: a"
        " score describes the form, and is no ranking. Made by `python benchmarks/variants.py`.",
        "",
        "| variant | rows sum to | signs | sees | map | results | previous token |"
        " duplicate token | first token | entropy | loading | scoring |",
        "|" + "---|" * 12,
    ]
    for r in rows:
        cells = [
            r["variant"],
            r["row_sum"],
            "both" if r["signed"] else "positive",
            "the past" if r["causal"] else "all",
            f"{r['map']:.0e}",
            f"{r['result']:.0e}",
            *(f"{r[m]:.2f}" for m in METRICS),
            f"{r['load']:.2f}",
            f"{r['score']:.2f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
