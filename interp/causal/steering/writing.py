"""Texts that a model writes while heads are scaled, beside those that it writes unchanged."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.causal.random_sets import random_sets
from interp.core.errors import OptionError
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.core.tokens import one_word, prompt_text_of
from interp.model.content import result_provenance
from interp.model.edits import gate
from interp.model.head_arguments import heads_with_stack
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.edits import Edit
    from interp.model.model import Model

END = "end of the text"


@takes_model
def generate_steered(
    model: Model,
    heads: Any,
    text: Any,
    *,
    max_new_tokens: int = 40,
    factors: Sequence[float] = (0.0,),
    temperature: float = 0.0,
    n_random: int = 4,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> ResultRows:
    """Write on from a text with heads unchanged and scaled, and find where the two texts part.

    Args:
        model: the model, which must be able to generate.
        heads: the heads that are scaled together, such as `["L3H1", "L4H0"]`, or a result.
        text: the text, or several; also chats or token ids.
        max_new_tokens: number of tokens to write.
        factors: what the heads' output z is multiplied by: 0 ablates it by zero, 1 is the model
            itself.
        temperature: 0 takes the likeliest token at each step; above 0 tokens are sampled, with the
            same random numbers in every text and the top-k and top-p of the model's own settings.
        n_random: random sets of as many heads of the same layers that are scaled too, as the null;
            0 for none.
        seed: seed of the sampling and of the random sets.
        progress: see `Progress`.

    Returns:
        One row per prompt and factor: score, the number of new tokens before the two texts part
        (all of them where they do not); null, its mean over the random sets; position, where they
        part, counted from 0 at the first token of the prompt, of an encoder-decoder at the
        decoder's first (NaN where they do not); token and
        changed_token, what stands there in the unchanged and in the changed text; prompt_text,
        unchanged and changed, the texts (token ids without a tokenizer). Facts: heads that were
        scaled, as steered, and max_new_tokens. By row: ids and changed_ids, the new tokens.

    Raises:
        OptionError: a number is out of range, a head does not exist, or the model cannot generate.
        PromptError: a text and its continuation do not fit the model's positions.

    Unit: tokens.

    Cost: One generation per prompt, and one per factor for the heads and for each random set.

    Null: the same factors for random sets of as many heads in the same layers.

    Not for: showing that a head is needed for what is written: one token that turns changes all
    that follow, and near a tie any edit turns it. Compare with the null, and see `steer`.

    Reference: this project.
    """
    chosen = heads_with_stack(model.whole_sites, heads, model.name)
    doses = tuple(float(x) for x in factors)
    if not doses or not all(map(math.isfinite, doses)) or len(set(doses)) < len(doses):
        raise OptionError(
            f"factors {list(factors)}; give one or more different finite numbers, such as 0 or 0,2"
        )
    for name, value, least in (("max_new_tokens", max_new_tokens, 1), ("n_random", n_random, 0)):
        if value < least:
            raise OptionError(f"{name}={value}; give at least {least}")
    if not 0 <= temperature < math.inf:
        raise OptionError(f"temperature={temperature}; give 0 or a finite number above 0")
    prompts = Prompts.of(text, model)
    sets = [chosen, *random_sets(model, chosen, n_random, seed)]
    done, total = 0, len(prompts) * (1 + len(doses) * len(sets))

    def write(given: Prompts, edits: Sequence[Edit]) -> tuple[int, tuple[int, ...]]:
        nonlocal done
        tokens = new_tokens(model, given, max_new_tokens, edits, temperature=temperature, seed=seed)
        done += 1
        if progress is not None:
            progress("writing", done, total)
        return tokens

    rows: list[dict[str, Any]] = []
    for number in range(len(prompts)):
        given = prompts.part([number])
        start, plain = write(given, ())
        for dose in doses:
            changed, *others = (write(given, [gate(one, dose)])[1] for one in sets)
            at = parting(plain, changed)
            before = [_alike(plain, other) for other in others]
            rows.append(
                {
                    "prompt": f"prompt {number + 1}",
                    "factor": dose,
                    "score": float(_alike(plain, changed)),
                    "null": float(np.mean(before)) if before else np.nan,
                    "position": np.nan if at is None else float(start + at),
                    "token": token_at(model, plain, at),
                    "changed_token": token_at(model, changed, at),
                    "prompt_text": said(model, given.ids[0]),
                    "unchanged": said(model, plain),
                    "changed": said(model, changed),
                    "ids": plain,
                    "changed_ids": changed,
                }
            )
    about = result_provenance(
        model,
        "interp.causal.generate_steered",
        prompts,
        seed=seed,
        heads=[str(h) for h in chosen],
        factors=list(doses),
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        n_random=len(sets) - 1,
    )
    arrays = {name: tuple(row.pop(name) for row in rows) for name in ("ids", "changed_ids")}
    return ResultRows(
        "Continuations",
        {name: [row[name] for row in rows] for name in rows[0]},
        ("prompt", "factor"),
        about,
        {
            "metric": "tokens_alike",
            "unit": "tokens",
            "n": 1,
            "max_new_tokens": max_new_tokens,
            "steered": tuple(map(str, chosen)),
        },
        arrays=arrays,
        by="lowest",
        why_no_per_prompt="each row is one prompt, whose value is the score",
    )


def new_tokens(
    model: Model,
    prompt: Prompts,
    max_new_tokens: int,
    edits: Sequence[Edit] = (),
    *,
    temperature: float = 0.0,
    seed: int = 0,
    **options: Any,
) -> tuple[int, tuple[int, ...]]:
    """Return where the tokens begin that a model writes on one prompt under edits, and these.

    Further options are those of `Model.generate`.
    """
    if temperature:
        options |= {"do_sample": True, "temperature": temperature}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        generated = model.generate(prompt, max_new_tokens, edits=edits, **options)
    return generated.start, tuple(generated.ids[0, generated.start :].tolist())


def parting(plain: Sequence[int], changed: Sequence[int]) -> int | None:
    """Return the first place where two sequences differ, or one ends; None if they are equal."""
    pairs = zip(plain, changed, strict=False)
    shorter = min(len(plain), len(changed))
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
    return None if at == len(plain) == len(changed) else at


def _alike(plain: Sequence[int], changed: Sequence[int]) -> int:
    at = parting(plain, changed)
    return len(plain) if at is None else at


def token_at(model: Model, ids: Sequence[int], at: int | None) -> str:
    """Return the text of the token at a place, empty for none; its id without a tokenizer."""
    if at is None:
        return ""
    if at >= len(ids):
        return END
    return str(ids[at]) if model.tokenizer is None else one_word(model, ids[at])


def said(model: Model, ids: Sequence[int]) -> str:
    """Return tokens as a text, or as their ids without a tokenizer."""
    return " ".join(map(str, ids)) if model.tokenizer is None else prompt_text_of(model, ids)


present(
    "Continuations",
    summary="interp.report.printed.writing:continuations_summary",
    text="interp.report.printed.writing:continuations_text",
)
