"""Pairs from a template file or a file of prompts, kept if tokens and the model allow them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.circuits.tasks.template_file import FilledTemplate, TemplateFile
from interp.circuits.tasks.wording import prompt_ids
from interp.core.errors import PromptError
from interp.core.prompts import Prompts
from interp.core.tokens import encoded_text, token_id
from interp.model.calls.call import precise

if TYPE_CHECKING:
    from interp.model.model import Model

KEEP = ("all", "preferred", "first")
BATCH = 32
TRIES = 50  # candidates to draw for every pair that is asked for


@dataclass(frozen=True)
class CandidatePair:
    """One candidate: both sides as tokens, its answers, and what the model does with it.

    Args:
        template: Label of its template; "" if there is none.
        prompt, corrupted: Both sides as they are written to a file: texts, or token ids.
        ids: Tokens of both sides.
        answer, wrong: Answers as they are written to a file: texts, or token ids.
        answers: Ids of answer and wrong answer.
        roles: Role -> position in the clean prompt.
        clean, contrast: Logit of the answer minus that of the wrong one, on the clean and on the
            corrupted prompt.
        probability: Probability of the answer after the clean prompt.
        first: The answer is the most likely token after the clean prompt.
    """

    template: str
    prompt: Any
    corrupted: Any
    ids: tuple[tuple[int, ...], tuple[int, ...]]
    answer: Any = None
    wrong: Any = None
    answers: tuple[int, int] | None = None
    roles: dict[str, int] = field(default_factory=dict)
    clean: float = np.nan
    contrast: float = np.nan
    probability: float = np.nan
    first: bool = False


@dataclass
class KeptPairs:
    """Pairs that passed, and how many did not, by reason.

    Args:
        pairs: The pairs that passed every filter.
        measured: Number of candidates that the model was run on.
        preferred: Number of these where the model prefers the answer to the wrong one.
        dropped: Number of candidates by the reason why they were left out.
    """

    pairs: list[CandidatePair] = field(default_factory=list)
    measured: int = 0
    preferred: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


def filtered(
    model: Model,
    candidates: Iterator[CandidatePair | str],
    n: int,
    keep: str,
    least_probability: float,
    tell: Callable[[int], None] | None = None,
) -> KeptPairs:
    """Take candidates until n pairs have passed; a text is the reason why one was left out."""
    kept, seen = KeptPairs(), set[tuple[Any, ...]]()
    left = True
    while left and len(kept.pairs) < n:
        block: list[CandidatePair] = []
        while len(block) < min(BATCH, n - len(kept.pairs)):
            pair = next(candidates, None)
            if pair is None:
                left = False
                break
            if isinstance(pair, str):
                kept.dropped[pair] += 1
            elif pair.ids in seen:
                kept.dropped["drawn before"] += 1
            else:
                seen.add(pair.ids)
                block.append(pair)
        for pair in _measured(model, block):
            kept.measured += 1
            kept.preferred += pair.clean > 0
            why = _fails(pair, keep, least_probability)
            if why:
                kept.dropped[why] += 1
            else:
                kept.pairs.append(pair)
        if tell is not None:
            tell(len(kept.pairs))
    return kept


def _fails(pair: CandidatePair, keep: str, least_probability: float) -> str:
    assert pair.answers is not None
    if pair.answers[0] == pair.answers[1]:
        return "answer and wrong answer are the same token"
    if keep != "all" and not pair.clean > 0:
        return "the model does not prefer the answer"
    if keep == "first" and not pair.first:
        return "the answer is not the model's most likely token"
    if not pair.probability >= least_probability:
        return f"the answer's probability is below {least_probability:g}"
    return ""


def _measured(model: Model, pairs: Sequence[CandidatePair]) -> list[CandidatePair]:
    """Run both sides of the pairs, complete missing answers, and measure the answers."""
    ends = [_last_logits(model, [pair.ids[side] for pair in pairs]) for side in (0, 1)]
    out = []
    for i, pair in enumerate(pairs):
        clean, contrast = precise(ends[0][i]), precise(ends[1][i])
        best = (int(clean.argmax()), int(contrast.argmax()))
        ids = pair.answers or best
        written = (
            (pair.answer, pair.wrong) if pair.answers else tuple(_text(model, t) for t in best)
        )
        out.append(
            replace(
                pair,
                answers=ids,
                answer=written[0],
                wrong=written[1],
                clean=float(clean[ids[0]] - clean[ids[1]]),
                contrast=float(contrast[ids[0]] - contrast[ids[1]]),
                probability=float(clean.softmax(-1)[ids[0]]),
                first=ids[0] == best[0],
            )
        )
    return out


def _last_logits(model: Model, each: Sequence[tuple[int, ...]]) -> list[Float[Tensor, " d_vocab"]]:
    """Return the logits after the last token of every prompt."""
    last: list[Any] = [None] * len(each)
    with torch.no_grad():
        for length in sorted({len(ids) for ids in each}):
            rows = [i for i, ids in enumerate(each) if len(ids) == length]
            logits = model.run(Prompts(tuple(each[i] for i in rows)))
            if logits.dim() != 3 or logits.shape[-1] < 2:
                raise PromptError(
                    f"{model.name} does not predict tokens (its output has the shape"
                    f" {tuple(logits.shape)}); pairs with answers need a language model"
                )
            for row, i in enumerate(rows):
                last[i] = logits[row, -1].cpu()
    return last


def _text(model: Model, token: int) -> str | int:
    """Return the text of a token if it is read back as this token, else its id."""
    if model.tokenizer is None:
        return token
    text = model.tokenizer.decode([token], clean_up_tokenization_spaces=False)
    ids = encoded_text(model.tokenizer, text, add_special_tokens=False)["input_ids"] if text else []
    return text if list(ids) == [token] else token


def from_templates(
    model: Model, file: TemplateFile, n: int, seed: int
) -> Iterator[CandidatePair | str]:
    """Draw candidates from a template file, at most 50 for each pair asked for."""
    rng = np.random.default_rng([seed, 61])
    for _ in range(TRIES * n):
        yield _tokens(model, file.draw(rng))


def _tokens(model: Model, drawn: FilledTemplate) -> CandidatePair | str:
    """Return a drawn pair as tokens, or the reason why its tokens do not allow it."""
    ids = prompt_ids(model, drawn.clean), prompt_ids(model, drawn.corrupted)
    answers = None
    if drawn.answer is not None:
        single = [_single(model, text) for text in (drawn.answer, drawn.wrong)]
        if single[0] is None or single[1] is None:
            return "an answer is not one token"
        answers = single[0], single[1]
    roles = {}
    for role, end in drawn.ends.items():
        before = prompt_ids(model, drawn.clean[:end])
        if ids[0][: len(before)] != before:
            return "the word of a role does not end where a token ends"
        roles[role] = len(before) - 1
    why = _unfit(model, ids)
    if why:
        return why
    return CandidatePair(
        str(drawn.template),
        drawn.clean,
        drawn.corrupted,
        ids,
        drawn.answer,
        drawn.wrong,
        answers,
        roles | {"end": len(ids[0]) - 1},
    )


def _single(model: Model, token: Any) -> int | None:
    if not isinstance(token, str | int):
        return None
    try:
        return token_id(model, token)
    except PromptError:
        return None


def _unfit(model: Model, ids: tuple[tuple[int, ...], tuple[int, ...]]) -> str:
    if len(ids[0]) != len(ids[1]):
        return "the two prompts have different numbers of tokens"
    if ids[0] == ids[1]:
        return "the two prompts have the same tokens"
    if model.limit is not None and len(ids[0]) > model.limit:
        return "the prompts are longer than the model's context"
    return ""


def from_rows(model: Model, path: Path) -> Iterator[CandidatePair | str]:
    """Read candidates from a .jsonl file with prompt and corrupted, with answers or without."""
    from interp.causal.task_rows import row_lines, rows_of_lines

    for number, row in zip(row_lines(path), rows_of_lines(path), strict=True):
        where = f"{path} line {number}"
        if "corrupted" not in row or "prompt" not in row:
            raise PromptError(f"{where} needs the fields prompt and corrupted")
        if ("answer" in row) != ("wrong" in row):
            raise PromptError(
                f"{where} has only one of answer and wrong; give both, or neither for the model's"
                " own completions"
            )
        if "position" in row:
            raise PromptError(
                f"{where} has a position; filtered pairs are measured after their last token:"
                " end the prompts there"
            )
        ids = tuple(Prompts.of([row[side]], model).ids[0] for side in ("prompt", "corrupted"))
        answers = None
        if "answer" in row:
            single = _single(model, row["answer"]), _single(model, row["wrong"])
            if single[0] is None or single[1] is None:
                yield "an answer is not one token"
                continue
            answers = single[0], single[1]
        why = _unfit(model, (ids[0], ids[1]))
        yield why or CandidatePair(
            str(row.get("cluster", "")),
            row["prompt"],
            row["corrupted"],
            (ids[0], ids[1]),
            row.get("answer"),
            row.get("wrong"),
            answers,
            dict(row.get("roles", {})),
        )
