"""The model card of a bundled model, written from its training record."""

from __future__ import annotations

from typing import Any

from training.recording import FRONT_MATTER

SUMMARIES = {
    "induction": "A two-layer language model whose induction heads were learned, not planted.",
    "one-layer": "A one-layer language model that cannot do induction: a negative control.",
}

CARD = (
    FRONT_MATTER
    + """
# {model}

{summary}

Trained from nothing by `python -m training.train --model {model} --seed {seed}` (part of the
interp repository) in {seconds:.0f} s on {threads} thread(s) of a busy CPU.

- **Architecture**: `LlamaForCausalLM`, {layers} layer(s), {heads} query heads on {kv_heads}
  key-value heads of {d_head} dimensions, d_model {d_model}, vocabulary {vocab},
  {parameters:,} parameters, trained in float32 and stored in float16.
- **Tokenizer**: BPE, built by the script; puts `<s>` before every text. It reads ASCII (anything
  else becomes `<unk>`), and only words of the training text are short.
- **Trained on**: {tokens:,} tokens in {steps} steps: short English paragraphs from a grammar of
  the repository (`training/text.py`), and blocks of random tokens repeated, the block's
  length varying from 5 to {longest}. Rows of {first} tokens; after {long_after} steps every second
  step of {length}. No text was collected from anywhere.
- **Can**: continue sentences of that grammar{can}.
- **Cannot**: follow instructions, know facts, write any other English, or be trusted beyond about
  {length} tokens of context, the longest it has seen.
- **Use**: for testing interpretability methods; it is of no use as a language model.
- **Licence**: MIT, weights and data.

## Scores

Mean and standard error over {rows_scored} rows, in nats per token. Copies are `<s> + r + r` with
distinct random tokens; the first copy cannot be predicted (uniform guessing: {uniform:.2f} nats).

| what | loss |
| --- | --- |
| text of the grammar, held out | {text} |
{copies}

The {number} heads with the highest induction score (mean mass on the token after the earlier copy,
r of {period} tokens) are {top}. Zeroing them multiplies the loss on the second copy by {factors}
(95 % interval by resampling rows). The factors are large also because the loss they multiply is
tiny; where several heads of a layer do the same work, the others go on when two are gone.

`training.json` has the recipe, versions, hashes, the loss curve, and every head's previous-token
and induction score at {looks} moments of training.
"""
)


def text(record: dict[str, Any]) -> str:
    """The card, in Markdown, of the model that `record` (training.json) is about."""
    scores, recipe = record["scores"], record["recipe"]
    copies, factors = [], []
    for period, found in scores["copies"].items():
        for label, key in (
            ("first copy", "first_copy_loss"),
            ("second copy", "second_copy_loss"),
            ("second copy, top heads zeroed", "second_copy_loss_without_top_heads"),
        ):
            copies.append(f"| r of {period} tokens, {label} | {_with_error(found[key])} |")
        low, high = found["factor_interval"]
        factors.append(f"{found['factor']:.2f} [{low:.2f}, {high:.2f}] for r of {period}")
    top = [f"L{layer}H{head} ({score:.2f})" for layer, head, score in scores["top_induction_heads"]]
    copies_well = all(f["second_copy_loss"][0] < 2 for f in scores["copies"].values())
    return CARD.format(
        **{k: recipe[k] for k in ("layers", "heads", "kv_heads", "d_head", "d_model")},
        steps=recipe["steps"],
        tokens=recipe["steps"] * recipe["rows"] * recipe["length"],
        first=recipe["length"],
        long_after=recipe["long_after"],
        length=4 * recipe["length"],
        period=list(scores["copies"])[1],
        model=record["model"],
        summary=SUMMARIES[record["model"]],
        seed=record["seed"],
        seconds=record["seconds"],
        threads=record["threads"],
        vocab=record["vocab"],
        parameters=record["parameters"],
        longest=2 * recipe["length"] - 1,
        can=", and go on with any sequence of tokens that has begun to repeat"
        if copies_well
        else "",
        rows_scored=scores["rows"],
        uniform=scores["uniform_loss"],
        text=_with_error(scores["text_loss"]),
        copies="\n".join(copies),
        number=len(top),
        top=" and ".join(top),
        factors=", ".join(factors),
        looks=len(record["emergence"]),
    )


def _with_error(pair: list[float]) -> str:
    return f"{pair[0]:.3f} ± {pair[1]:.3f}"
