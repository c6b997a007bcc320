"""Are the heads of a one-layer model an ensemble? Which of two symbols is more frequent.

    python benchmarks/counting.py      # trains 3 models in about two minutes

One layer of 4 heads without MLP reads strings of 0 and 1 of random length and answers at the end
which symbol occurs more often. Then each head alone, their average, learned weights and the whole
model answer held-out strings. The untrained model is the baseline.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import interp
from interp import causal
from interp.causal import head_aggregation
from interp.core.files import write_atomically

HERE = Path(__file__).parent
ASK, LENGTHS, STEPS, SEEDS, HELD = 2, (5, 15), 800, 3, 400


class Nothing(nn.Module):
    """An MLP that adds nothing."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return zeros."""
        return torch.zeros_like(x)


def strings(n: int, rng: np.random.Generator) -> tuple[list[list[int]], list[int]]:
    """Draw strings of odd length with any number of ones, and the more frequent symbol."""
    out, right = [], []
    for _ in range(n):
        length = int(rng.choice(np.arange(LENGTHS[0], LENGTHS[1] + 1, 2)))
        ones = int(rng.integers(0, length + 1))
        bits = rng.permutation([1] * ones + [0] * (length - ones)).tolist()
        out.append([*bits, ASK])
        right.append(int(ones > length / 2))
    return out, right


def trained(seed: int, steps: int) -> GPT2LMHeadModel:
    """Train a model; none for 0 steps."""
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=3,
        n_positions=32,
        n_embd=32,
        n_layer=1,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
    )
    module = GPT2LMHeadModel(config)
    module.transformer.h[0].mlp = Nothing()  # type: ignore[assignment]
    adam = torch.optim.Adam(module.parameters(), lr=3e-3)
    rng = np.random.default_rng([seed, 1])
    for _ in range(steps):
        texts, right = strings(64, rng)
        longest = max(map(len, texts))
        ids = torch.tensor([[ASK] * (longest - len(t)) + t for t in texts])
        mask = torch.tensor([[0] * (longest - len(t)) + [1] * len(t) for t in texts])
        place = (mask.cumsum(1) - 1).clamp_min(0)
        logits = module(ids, attention_mask=mask, position_ids=place).logits[:, -1, :2]
        loss = nn.functional.cross_entropy(logits, torch.tensor(right))
        adam.zero_grad()
        loss.backward()
        adam.step()
    return module.eval()


def measured(module: GPT2LMHeadModel, seed: int) -> dict[str, list[float]]:
    """Return the accuracy of every sum of heads on held-out strings, with its interval."""
    model = interp.load(module, name=f"counting {seed}")
    texts, right = strings(HELD, np.random.default_rng([seed, 2]))
    wrong = [1 - r for r in right]
    task = causal.custom(
        model,
        texts,
        lambda logits, i: float(logits[-1, right[i]] > logits[-1, wrong[i]]),
        name="majority",
        unit="accuracy",
        higher_is_better=True,
        has_gradient=False,
    )
    log_loss = causal.loss(model, texts, [[-1]] * len(texts), labels=[[r] for r in right])
    found = head_aggregation(model, task, fit=log_loss, steps=200, seed=seed)
    frame = found.to_pandas().set_index("part")
    return {
        part: [float(frame.loc[part, c]) for c in ("score", "low", "high")] for part in frame.index
    }


def main() -> None:
    """Train, measure, and write the table."""
    torch.set_num_threads(1)
    results = {}
    for seed in range(SEEDS):
        results[f"trained {seed}"] = measured(trained(seed, STEPS), seed)
    results["untrained 0"] = measured(trained(0, 0), 0)
    lines = [
        "# Heads of a counting model: an ensemble?",
        "",
        f"One layer, 4 heads, no MLP; which symbol is more frequent in {LENGTHS[0]} to"
        f" {LENGTHS[1]} bits. Accuracy on held-out strings with its 95 % interval; weights were"
        " fitted on others. Chance 0.5.",
        "",
        "| sum of heads | " + " | ".join(results) + " |",
        "|---|" + "---|" * len(results),
    ]
    for part in results["trained 0"]:
        cells = []
        for each in results.values():
            score, low, high = each[part]
            cells.append(f"{score:.2f} [{low:.2f}, {high:.2f}]")
        lines.append(f"| {part} | " + " | ".join(cells) + " |")
    write_atomically(HERE / "counting.json", json.dumps(results, indent=1).encode())
    write_atomically(HERE / "counting.md", ("\n".join(lines) + "\n").encode())
    print("\n".join(lines))


if __name__ == "__main__":
    main()
