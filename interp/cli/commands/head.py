"""Command `interp head`: one screen on what one head does on a corpus."""

from __future__ import annotations

import tempfile
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.stored import stored_profile
from interp.cli.value_types import HEADS
from interp.cli.vocabulary import Spelling
from interp.core.errors import OptionError
from interp.core.shell_line import shell_line
from interp.model.loading import source_labels
from interp.model.sources.folder import require_known
from interp.profiles.sentence import effect_sentences
from interp.profiles.sources import BUNDLED

if TYPE_CHECKING:
    from interp.model.model import Model
    from interp.profiles.result import Profile

GROUP = "Look"
TEXT = "The keys are on the table"
CONTEXTS = {"n_documents": 16, "n_queries": 16, "widths": (1, 4, 16)}
WIDER = (64,)  # tokens of context, with --verbose
DOCUMENTS = 64  # read for one head: enough for intervals, within seconds on a small model


def _check(run: Run) -> None:
    require_known(*run.sources)
    if run.values["load"] is not None and run.values["corpus"]:
        raise OptionError("the profile of --load has its own corpus; give one of them, not both")


@command(
    over="sources",
    arguments=("MODEL", "head"),
    loading=("chat",),
    options={
        "head": Spelling(type=HEADS),
        "load": Spelling(
            type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR"
        ),
    },
    out=None,
    check=_check,
    example="interp head bundled:stories L3H1",
)
def head(
    run: Run,
    sources: tuple[str],
    head: str,
    *,
    load: Path | None = None,
    corpus: Any = None,
    verbose: bool = False,
    progress: Any = None,
) -> None:
    """Show what one HEAD of MODEL does on text, such as L5H4, with examples.

    Without --load the head's layer alone is profiled, on at most 64 documents, which takes half a
    minute on a small model; what it attends to comes first. Without --corpus these are the texts
    that come with MODEL, else the bundled texts if they suit it, else texts that it writes; real
    texts are always better.

    Args:
        sources: the model.
        load: folder that `interp profile -o DIR` wrote; its profile is shown at once.
        corpus: the documents.
        verbose: show every number, not the sentence and a few examples alone.
    """
    if load is not None:
        [(source, name)] = source_labels(sources).items()
        described = stored_profile(load, name, source)
        run.say(described.about(head, n_examples=2 if verbose else 1, full=verbose))
    else:
        described = _measured(run, run.load(*sources), head, corpus, verbose, progress)
    run.say("\n".join(_next_lines(described, head, *sources)))


def _measured(
    run: Run, model: Model, head: str, corpus: Any, verbose: bool, progress: Any
) -> Profile:
    """Profile one head: what it attends to first, then whether it matters and its context."""
    from interp.profiles.run import profile
    from interp.report.printed.profile import text_block

    with tempfile.TemporaryDirectory() as steps:
        options: dict[str, Any] = {"heads": [head], "n_documents": DOCUMENTS, "resume": steps}
        ask = partial(profile, model, corpus, **options, progress=progress)
        if verbose:
            described = ask()
            run.say(described.about(head))
        else:
            described = ask(effects=False, behaviours=False)
            run.say(described.about(head, n_examples=1, full=False).removesuffix("\n"))
            run.voice.note("effect and context follow, within about twice that time (an estimate)")
            about = ask(behaviours=False).description(head)
            said = effect_sentences(about.get("effect", {}), about.get("writes", {}))
            run.say("\n".join(text_block("", " ".join(said))))
    texts = [text.tolist() for text in described.texts]
    texts = texts or corpus or (None if described.provenance["text"].get("own") else BUNDLED)
    if context := _context(model, head, texts, verbose, progress):
        run.say("\n".join(context))
    return described


def _context(model: Any, head: str, texts: Any, verbose: bool, progress: Any) -> list[str]:
    """Return lines on the context that the head needs, or with --verbose why that is not known."""
    from interp.profiles.context import context_needed, why_no_context
    from interp.report.printed.context import context_lines, context_table

    if why := why_no_context(model):
        return [f"  context it needs: not measured, since {why}"] if verbose else []
    options: dict[str, Any] = {**CONTEXTS, "progress": progress}
    if verbose:
        options["widths"] += WIDER
    found = context_needed(model, texts, heads=[head], **options)
    return [*context_lines(found, head), *(context_table(found, head) if verbose else [])]


def _next_lines(found: Profile, head: str, source: str) -> list[str]:
    """Return the commands that show the head on a text, and whether it matters, to be pasted."""
    about, text = found.description(head), TEXT
    for example in found.examples_of(head, "strongest")[:1]:
        ends = [0, *example["gaps"], len(example["tokens"])]
        parts = ["".join(example["tokens"][a:b]) for a, b in pairwise(ends)]
        text = " ".join(max(parts, key=len).split()) or TEXT
    name, several = head.rsplit(maxsplit=1)[-1], len({x["stack"] for x in found.descriptions}) > 1
    stacks = [about["stack"]] * several
    shown = shell_line(
        "view",
        source,
        "--heads",
        name,
        *(x for each in stacks for x in ("--stack", each)),
        "--text",
        text,
    )
    measured = shell_line(
        "importance",
        "ablate",
        source,
        "--heads",
        name,
        *(x for each in stacks for x in ("--stack", each)),
    )
    return [
        "  Next: its pattern on a text, which may be one of your own",
        f"    {shown}",
        "  and whether it matters for a task",
        f"    {measured}",
    ]
