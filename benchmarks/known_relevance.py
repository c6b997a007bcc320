"""Attribution methods on models whose relevant tokens are known: how often the largest is one.

    python -m benchmarks.known_relevance [--n 24] [--models trained:induction ...] [--out FOLDER]

A token is relevant if another one in its place, new to the prompt if possible, changes what the
model's algorithm answers: of a trained or planted model by the algorithm that it was verified to
hold, of a compiled program by the program. Finished models are kept in known_relevance.json. Writes
known_relevance.json and .md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import interp
from interp.attribution import attribute
from interp.attribution.target import Target
from interp.core.errors import InterpError
from interp.core.intervals import share_interval
from interp.core.registry import ATTRIBUTION_METHODS
from interp.planted.programs import PROGRAMS, joined
from interp.planted.trained import SEVERAL_TASKS, TRAINED
from interp.planted.trained.cases import CASES

HERE = Path(__file__).parent
COSTLY = {"attention_flow"}  # n x n maximum flows per text
COMPILED = ("shift_by", "reverse", "detect_pattern", "sort_unique", "hist", "count")
Answer = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Known:
    """One prompt, the output that is explained, and the tokens that it depends on."""

    ids: list[int]
    target: Target
    relevant: np.ndarray  # by position; the first token is none


def relevant_tokens(ids: np.ndarray, answer: Answer, choices: np.ndarray) -> np.ndarray:
    """Return True where another token changes the answer; the first position is left out.

    The other tokens are those that stand nowhere in the prompt, where there are any: a second copy
    of a token would change answers that do not depend on what stood there.
    """
    own = answer(ids[None])[0]
    new = np.setdiff1d(choices, ids)
    choices = new if len(new) else choices
    found = np.zeros(len(ids), dtype=bool)
    for at in range(1, len(ids)):
        changed = np.repeat(ids[None], len(choices), 0)
        changed[:, at] = choices
        found[at] = bool((answer(changed) != own).any())
    return found


def logit(right: int, row: int) -> Target:
    """Target of an output column at a position, against the mean of the others."""

    def read(output: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        return output[:, row, right] - output[:, row].mean(-1)

    return Target(f"output {right} at {row}, less the mean", read, row, "logit")


def trained(name: str, n: int, seed: int) -> Iterator[Known]:
    """Prompts of the tasks of a trained model that it answers right."""
    case = CASES[name]
    rng = np.random.default_rng([seed, 53])
    for task in SEVERAL_TASKS.get(name, tuple(case.ends)):
        end = case.ends[task]
        pool = case.draw(rng, 8 * n)
        choices = np.unique(pool[:, 1:])

        def answer(ids: np.ndarray, task: str = task) -> np.ndarray:
            return case.run(ids)[0][task]

        right = answer(pool)
        for ids, token in list(zip(pool, right, strict=True))[:n]:
            relevant = relevant_tokens(ids, answer, choices)[: end + 1]
            if relevant.any() and not relevant.all():
                yield Known(ids[: end + 1].tolist(), logit(int(token), end), relevant)


def copying(n: int, seed: int) -> Iterator[Known]:
    """Prompts of random tokens in which the last one stands earlier: its follower is copied."""
    rng = np.random.default_rng([seed, 54])
    for _ in range(n):
        ids = np.concatenate([[0], 1 + rng.permutation(63)[:15], [0]])
        ids[-1] = ids[rng.integers(1, 14)]
        relevant = relevant_tokens(ids, _after_last, np.arange(1, 64))
        yield Known(ids.tolist(), logit(int(_after_last(ids[None])[0]), len(ids) - 1), relevant)


def _after_last(ids: np.ndarray) -> np.ndarray:
    """Return the token after the earlier copy of the last token; -1 without one or with several."""
    same = ids[:, 1:-1] == ids[:, -1:]
    after = ids[np.arange(len(ids)), same.argmax(1) + 2]
    return np.where(same.sum(1) == 1, after, -1)


def compiled(name: str, n: int, seed: int) -> Iterator[Known]:
    """Lists of words, and an output of a program that depends on some of them."""
    made, library = joined(name), PROGRAMS[name]
    part = made.parts[name]
    rng = np.random.default_rng([seed, 55])
    columns = list(part.columns)
    length = library.longest
    first = made.ids([[library.words[0]] * length])[0]
    choices = np.array([made.ids([[w] * length])[1] for w in library.words])
    found = 0
    for _ in range(50 * n):
        different = name == "sort_unique"
        words = (
            choices[rng.permutation(len(choices))[:length]]
            if different
            else rng.choice(choices, length)
        )
        ids = np.concatenate([[first], words])
        row = int(rng.integers(1, len(ids)))

        def answer(rows: np.ndarray, row: int = row) -> np.ndarray:
            with torch.no_grad():
                outputs = made.module(torch.from_numpy(rows)).logits[:, row, columns]
            if len(columns) == 1:
                return (outputs[:, 0] * 1000).round().numpy()
            best = outputs.topk(2).values
            # a position without an answer has equal outputs
            return torch.where(best[:, 0] - best[:, 1] > 0.5, outputs.argmax(-1), -1).numpy()

        own = int(answer(ids[None])[0])
        relevant = relevant_tokens(ids, answer, choices)
        if own >= 0 and relevant.any() and not relevant[1:].all():
            right = columns[own] if len(columns) > 1 else columns[0]
            yield Known(ids.tolist(), logit(right, row), relevant)
            found += 1
        if found == n:
            return


def cases(n: int, seed: int) -> dict[str, Callable[[], Iterator[Known]]]:
    """Return makers of the prompts of every model."""
    found: dict[str, Callable[[], Iterator[Known]]] = {
        "planted:induction": lambda: copying(n, seed)
    }
    found |= {f"trained:{x}": lambda x=x: trained(x, n, seed) for x in TRAINED}
    return found | {f"compiled:{x}": lambda x=x: compiled(x, n, seed) for x in COMPILED}


def hits(scores: np.ndarray, relevant: np.ndarray) -> tuple[float, float]:
    """Return whether the largest |score| is relevant, and the share of relevant among the top.

    The first token is left out; among equal largest scores the hit is the share of relevant ones.
    The second looks at as many of the largest scores as tokens are relevant.
    """
    size, known = np.abs(scores[1:]), relevant[1:]
    largest = size >= size.max() - 1e-9 * max(size.max(), 1e-30)
    order = np.argsort(-size, kind="stable")
    return float(known[largest].mean()), float(known[order[: known.sum()]].mean())


def measured(name: str, known: list[Known], methods: list[str]) -> dict[str, Any]:
    """Return hits of every method on one model, with the reason where a method does not apply."""
    model = interp.load(name)
    rows: dict[str, Any] = {}
    for method in methods:
        each = []
        try:
            for one in known:
                found = attribute(model, one.ids, method, one.target)
                each.append(hits(np.asarray(found.scores, dtype=float), one.relevant))
        except InterpError as error:
            rows[method] = {"why": str(error).splitlines()[0]}
            continue
        top, recalled = np.array(each).T
        low, high = share_interval(round(float(top.sum())), len(top))
        rows[method] = {
            "top": float(top.mean()),
            "low": low,
            "high": high,
            "recall": float(recalled.mean()),
        }
    share = [k.relevant[1:].mean() for k in known]
    return {"n": len(known), "chance": float(np.mean(share)), "rows": rows}


def page(record: dict[str, Any]) -> str:
    """Return the tables as Markdown."""
    names = list(record["models"])
    every = {m: [record["models"][x]["rows"].get(m, {}) for x in names] for m in record["methods"]}
    means = {m: np.mean([x["top"] for x in row if "top" in x] or [0]) for m, row in every.items()}
    order = sorted(every, key=lambda m: -means[m])
    lines = [
        "# Attribution methods where the relevant tokens are known",
        "",
        "Share of prompts in which the token with the largest |score| is one on which the answer "
        "depends, by the algorithm that the model holds: another token in its place, new to the "
        "prompt where the vocabulary allows it, changes the answer. The first token (BOS) is left "
        "out. The target is the answer's logit less the mean of the others. *Chance* is the share "
        "of relevant tokens. Intervals (Wilson, 95 %) are in the JSON, with the share of relevant "
        "tokens among as many of the largest scores, and with the reason where a method does not "
        "apply (-). Made by "
        "`python -m benchmarks.known_relevance`.",
        "",
    ]
    for kind in ("planted", "trained", "compiled"):
        mine = [x for x in names if x.startswith(f"{kind}:")]
        if not mine:
            continue
        heads = " | ".join(x.partition(":")[2] for x in mine)
        lines += [f"## {kind.capitalize()} models", "", f"| method | {heads} |"]
        lines.append("|---|" + "---|" * len(mine))
        for method in order:
            cells = [record["models"][x]["rows"].get(method, {}).get("top") for x in mine]
            if any(c is not None for c in cells):
                shown = " | ".join("-" if c is None else f"{c:.2f}" for c in cells)
                lines.append(f"| {method} | {shown} |")
        shares = [f"{record['models'][x]['chance']:.2f}" for x in mine]
        counts = [str(record["models"][x]["n"]) for x in mine]
        lines += [
            f"| *{w}* | {' | '.join(c)} |" for w, c in (("chance", shares), ("prompts", counts))
        ]
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Attribution methods on known relevance.")
    parser.add_argument("--n", type=int, default=24, help="prompts per model and task")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write")
    given = parser.parse_args()
    every = ATTRIBUTION_METHODS.values()
    methods = [e.name for e in every if e.group == "attribution methods" and e.name not in COSTLY]
    file = given.out / "known_relevance.json"
    record: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"models": {}}
    record["methods"] = methods
    for name, make in cases(given.n, given.seed).items():
        if name not in record["models"] and (not given.models or name in given.models):
            record["models"][name] = measured(name, list(make()), methods)
            print(name, record["models"][name]["n"], flush=True)
            file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (given.out / "known_relevance.md").write_text(page(record), encoding="utf-8")


if __name__ == "__main__":
    main()
