"""The model card of a language model of the stories, written from its training record."""

from __future__ import annotations

from textwrap import fill
from typing import Any

from training.recording import FRONT_MATTER
from training.stories.questions import ABILITIES

SUMMARIES = {
    "stories": "A four-layer language model that writes short English texts of a small world, "
    "trained on texts in which the truth of every word is known.",
}
OF_A_SEED = (
    "bundled:stories trained again from nothing with another seed, on other texts of the same kind."
)

CARD = (
    FRONT_MATTER
    + """
# {model}

{summary}

Trained from nothing by `python -m training.stories train --seed {seed} --out FOLDER` (part of the
interp repository) in {minutes:.0f} minutes on {threads} thread(s) of a busy CPU.

- **Architecture**: `LlamaForCausalLM`, {layers} layers, {heads} query heads on {kv_heads}
  key-value heads of {d_head} dimensions, d_model {d_model}, MLPs of {d_mlp}, vocabulary {vocab:,},
  {parameters:,} parameters, trained in float32 and stored in {stored}.
- **Tokenizer**: byte-level BPE, trained on texts of the same generator; it reads any text and puts
  `<s>` before it. A name of a person after a space is one token.
- **Trained on**: {tokens:,} tokens in {steps:,} steps: {texts:,} short English texts, each once,
  by the generator of the repository (`training/stories`): people who have, give, sell, lose and
  hide things, talk, write letters and lists, count, and repeat verses. No text was collected from
  anywhere. Generator `{generator}`. Beside them {repeats} of {rows} rows are blocks of random
  tokens said again; the first {early} steps read such blocks and pieces of {piece} tokens.
{can}
{cannot}
- **Use**: for research on how language models work, where statements about heads can be compared
  with the truth of the text; it is of no use as a language model.
- **Licence**: MIT, weights and data.

## Losses

Mean nats per token, with the 95 % interval by resampling texts. The *entropy of the choices* that
made the texts is an upper bound of the least possible expected loss. *Unigram* is the loss of a
model that only knows how frequent each token is in training texts; guessing among all tokens
costs {uniform:.2f} nats. Tokens of foreign texts are shorter, so compare nats per character there.

| texts | n | tokens | loss | entropy of the choices | unigram | nats per character |
| --- | --- | --- | --- | --- | --- | --- |
{losses}

*Unseen texts* come from seeds that no training reads. In *unseen combinations* the first thing
belongs to a person who never has it in training. `prompts.txt` (of another grammar) and
`corpus.jsonl` (prose, dialogue, code and lists) lie in the repository's folder `data`.

## Abilities

Each ability is a set of questions from unseen texts, one per text: a place in a text, the answer
that the world of the story determines, and others that could stand there. A question counts as
answered if the first token of the right answer gets a higher logit than that of every other one.
In brackets is Wilson's 95 % interval. *Chance* is the mean of one over the number of answers.
*Most frequent* answers with what is most often right in training texts. The last column is the
best of the simple rules that are listed below.

| ability | n | accuracy | chance | most frequent | best simple rule |
| --- | --- | --- | --- | --- | --- |
{tasks}

{meanings}

{verdicts}

People and things that no training text has together (the thing that is asked for is the first one
of the text):

| ability | n | accuracy | chance | most frequent | best simple rule |
| --- | --- | --- | --- | --- | --- |
{combinations}

## Sample

The beginning of an unseen text, and how the model goes on, with the most probable token each time:

> {beginning} **|** {continuation}

`training.json` has the recipe, versions, hashes, the loss curve, and the numbers above.
"""
)


def text(record: dict[str, Any], summary: str = "") -> str:
    """Return the card, in Markdown, of the model that a record is about.

    Args:
        record: of the training (training.json), with what `abilities` returned.
        summary: one sentence on the model; by default that of its name.
    """
    recipe, exam = record["recipe"], record["abilities"]
    tasks = exam["tasks"]
    beginning, continuation = exam["sample"]
    return CARD.format(
        **{k: recipe[k] for k in ("layers", "heads", "kv_heads", "d_head", "d_model", "d_mlp")},
        **{k: recipe[k] for k in ("steps", "texts", "repeats", "early", "piece")},
        rows=recipe["rows"] + recipe["repeats"],
        **{k: record[k] for k in ("model", "seed", "threads", "vocab", "parameters", "tokens")},
        stored=record["stored"],
        summary=summary or SUMMARIES.get(record["model"], OF_A_SEED),
        minutes=record["seconds"] / 60,
        generator=record["generator"][:12],
        can=_can(tasks),
        cannot=_cannot(tasks, recipe["context"]),
        uniform=exam["losses"]["unseen texts"]["uniform"],
        losses="\n".join(_loss_row(name, each) for name, each in exam["losses"].items()),
        tasks="\n".join(_row(name, each) for name, each in tasks.items()),
        combinations="\n".join(_row(n, each) for n, each in exam["unseen combinations"].items()),
        meanings="\n".join(_meaning(name, each) for name, each in tasks.items()),
        verdicts="\n".join(_verdicts(tasks)),
        beginning=_quoted(beginning),
        continuation=_quoted(continuation.strip()),
    )


def _quoted(written: str) -> str:
    """Return text as lines of a quotation in Markdown, in which marks of Markdown mean nothing."""
    for mark in "\\*_<>#[]`":
        written = written.replace(mark, "\\" + mark)
    lines = [
        line.replace("- ", "\\- ", 1) if line[:2] == "- " else line for line in written.split("\n")
    ]
    return "  \n> ".join(lines)


def _and(names: list[str]) -> str:
    marked = [f"*{name}*" for name in names]
    return " and ".join([", ".join(marked[:-1]), marked[-1]] if len(marked) > 1 else marked)


def _best_rule(found: dict[str, Any]) -> tuple[str, float]:
    """Return the simple rule that is right most often, and how often it is."""
    return max(found["rules"].items(), key=lambda pair: pair[1])


def _verdict(found: dict[str, Any]) -> str:
    """Return what the interval of an ability lies above: nothing, chance, or the rules as well."""
    low = found["interval"][0]
    if low <= found["chance"]:
        return "near chance"
    above = low > max(found["frequent"], _best_rule(found)[1])
    return "above chance and rules" if above else "above chance"


def _with(verdict: str, tasks: dict[str, dict[str, Any]]) -> list[str]:
    return [name for name, found in tasks.items() if _verdict(found) == verdict]


def _bullet(words: str) -> str:
    """Return an entry of a list in lines of at most 100 characters."""
    return fill(words, 100, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


def _can(tasks: dict[str, dict[str, Any]]) -> str:
    """Return which questions the model answers better than chance, and than simple rules."""
    best, others = _with("above chance and rules", tasks), _with("above chance", tasks)
    words = "**Can**: write such texts"
    if best:
        words += (
            f", and answer questions on {_and(best)} better than chance, the most frequent answer "
            "and simple rules"
        )
    if others:
        words += (
            f". On {_and(others)} it is better than chance, but the most frequent answer or a "
            "simple rule is right as often, so accuracy does not show how it answers these"
        )
    return _bullet(words + ".")


def _cannot(tasks: dict[str, dict[str, Any]], context: int) -> str:
    """Return what the model cannot do, first of all where it is near chance."""
    words = "**Cannot**: "
    if near_chance := _with("near chance", tasks):
        words += f"answer questions on {_and(near_chance)}, where it is near chance (see below); "
    return _bullet(
        words
        + "follow instructions, know facts, or read or write any other English (see the losses "
        f"below). Its context is {context} tokens, and it has read one text at a time."
    )


def _row(name: str, found: dict[str, Any]) -> str:
    if not found["n"]:
        return f"| {name} | 0 | no question | | | |"
    low, high = found["interval"]
    return (
        f"| {name} | {found['n']:,} | {found['accuracy']:.3f} [{low:.3f}, {high:.3f}] | "
        f"{found['chance']:.3f} | {found['frequent']:.3f} | {_best_rule(found)[1]:.3f} |"
    )


def _meaning(name: str, found: dict[str, Any]) -> str:
    """Return what an ability is, with the simple rules and the kinds of its questions."""
    rules = "; ".join(f"{rule} ({share:.3f})" for rule, share in found["rules"].items())
    kinds = ", ".join(
        f"{kind} {each['accuracy']:.3f} (n = {each['n']:,})"
        for kind, each in found["kinds"].items()
    )
    by_kind = f" Accuracy by kind: {kinds}." if kinds else ""
    return _bullet(f"**{name}**: {ABILITIES[name].about}. Rules: {rules}.{by_kind}")


def _verdicts(tasks: dict[str, dict[str, Any]]) -> list[str]:
    """Return in sentences which abilities are near chance, or no better than a simple rule."""
    near_chance, above_chance = _with("near chance", tasks), _with("above chance", tasks)
    sentences = []
    if near_chance:
        sentences.append(f"Near chance (the interval reaches down to it): {_and(near_chance)}.")
    if above_chance:
        sentences.append(
            f"Above chance, but not above the most frequent answer and the simple rules: "
            f"{_and(above_chance)}."
        )
    if not sentences:
        sentences.append("All abilities are above chance, the most frequent answer and the rules.")
    return [fill(" ".join(sentences), 100, break_on_hyphens=False)]


def _loss_row(name: str, found: dict[str, Any]) -> str:
    low, high = found["interval"]
    bound = "unknown" if found["bound"] is None else f"{found['bound']:.3f}"
    return (
        f"| {name} | {found['texts']:,} | {found['tokens']:,} | "
        f"{found['nats_per_token']:.3f} [{low:.3f}, {high:.3f}] | {bound} | "
        f"{found['unigram']:.3f} | {found['nats_per_character']:.3f} |"
    )
