"""Command `interp texts anchors`: sentences of a text that later ones attend to and depend on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.value_types import PromptFile
from interp.cli.vocabulary import Spelling
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.model.model import Model
    from interp.text.chains import Chain
    from interp.text.chains.anchors_result import Anchors

ENDS = ("json", "csv", "html")


def _check(run: Run) -> None:
    values = run.values
    if "resampling" in values["methods"] and values["file"] and not values["answer"]:
        raise OptionError("--method resampling measures the answer; give it with --answer")


def _chains(run: Run) -> list[Chain]:
    from interp.core.prompt_file import prompt_text
    from interp.text.chains import Chain, linked_chains

    files, seed = run.values["file"], run.values["seed"]
    if not files:
        planted = linked_chains(
            run.model, n_chains=3, n_sentences=12, length=6, anchors=1, links=3, seed=seed
        )
        run.voice.note(f"no file given: {len(planted)} chains of random tokens with planted links")
        return planted
    about = {name: run.values[name] for name in ("question", "answer")}
    names = [f.stem for f in files]
    if len(set(names)) < len(names):
        names = [str(f) for f in files]
    return [
        Chain.of_text(run.model, prompt_text(f), name=name, **about)
        for f, name in zip(files, names, strict=True)
    ]


@command(
    also={
        "interp.text.chains.anchors:thought_anchors": (
            "batch_size",
            "seed",
        )
    },
    inputs={"chains": Input(_chains, ("file", "question", "answer"))},
    options={
        "file": Spelling(
            type=PromptFile(), multiple=True, help="File of one long text; repeatable."
        ),
        "question": Spelling(
            default="",
            metavar="TEXT",
            help="Text after each chain, such as ' Therefore the answer is'.",
        ),
        "answer": Spelling(
            default="", metavar="TEXT", help="The answer, on which effects are measured."
        ),
        "methods": Spelling(
            type=click.Choice(["attention", "suppression", "resampling"]),
            metavar="NAME",
            default=(),
            read=tuple,
        ),
    },
    text="interp.report.printed:nothing",
    check=_check,
    example="interp texts anchors MODEL --file trace.txt --answer ' 42' -o results",
)
def anchors(
    run: Run,
    model: Model,
    chains: list[Chain],
    *,
    methods: Sequence[str] = (),
    top: int = 5,
    progress: Any = None,
    **options: Any,
) -> Anchors:
    """Find the sentences of long texts (FILE) that later ones attend to and depend on.

    Receiver heads are those whose attention from far behind goes to few sentences. Hiding a
    sentence from all later tokens, and resampling it, measure what depends on it. Without a file,
    chains of random tokens with planted links are made, and the measures are compared with them.

    Args:
        chains: the texts.
        methods: method of analysis; repeatable. By default attention and suppression, and
            resampling if there is an answer.
        top: number of heads and of sentences to print.
    """
    from interp.report.printed.texts import anchors_text, receivers_text
    from interp.text.chains import receiver_heads, thought_anchors

    heads = receiver_heads(model, chains, progress=progress, seed=options["seed"])
    result = thought_anchors(model, chains, methods=methods or None, progress=progress, **options)
    run.say(f"Receiver heads of {model.name} on {len(chains)} texts:")
    run.say(receivers_text(heads, top))
    run.say(anchors_text([result], top=top))
    if not run.values["file"] and "suppression" in result.measures:
        run.say(_planted(result, chains))
    for one, stem in ((heads, "receivers"), (result, "anchors")):
        run.write(one, *(f"{stem}.{end}" for end in ENDS))
    return result


def _planted(found: Anchors, chains: list[Chain]) -> str:
    import numpy as np

    hits = total = 0
    for number, chain in enumerate(chains):
        mine = np.flatnonzero(found.of_chain == number)
        for later, earlier in chain.depends:
            hits += int(found.depends[mine[later]] == earlier)
            total += 1
    return (
        f"\nPlanted links: in {hits} of {total}, the sentence whose suppression changes the later "
        "one most is the planted one."
    )
