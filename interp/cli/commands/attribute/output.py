"""Command `interp attribute`: attribution of a model output to the tokens of a text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from interp.cli.coloured import (
    file_options,
    print_attribution,
    standing_warning,
    write_attributions,
)
from interp.cli.loading import Loading, loaded, loading_options
from interp.cli.name_types import ATTRIBUTION_NAMES
from interp.cli.progress import Voice
from interp.cli.shared_options import model_argument, text_option
from interp.cli.texts import asked_texts, require_tokens
from interp.cli.value_types import PromptFile
from interp.core.errors import InterpError

DEFAULT = ("attn_lrp", "occlusion:how=mean")


@click.command(
    epilog="Example: interp attribute gpt2 --text 'The keys are on the' -m occlusion -o a.html"
)
@model_argument
@text_option
@click.option(
    "--file",
    type=PromptFile(),
    metavar="FILE",
    help="File with one text per line, in place of --text.",
)
@click.option(
    "-m",
    "--method",
    "methods",
    type=ATTRIBUTION_NAMES,
    multiple=True,
    metavar="NAME[:OPTION=VALUE,...]",
    help="A method of `interp list methods`, several separated by commas, or a .py file that "
    "declares "
    "one. Repeatable; "
    f"{' and '.join(DEFAULT)} by default.",
)
@click.option(
    "-t",
    "--target",
    metavar="TARGET",
    help="Number to explain: WORD or token:WORD, token:WORD|OTHER for a logit difference, id:N, "
    "class:N, or similarity:TEXT; by default the model's top prediction.",
)
@click.option(
    "--position",
    default=-1,
    show_default=True,
    type=int,
    help="Output position of the target; negative counts from the end.",
)
@file_options
@loading_options
def output(
    text: str | None,
    source: str,
    file: Path | None,
    methods: tuple[str, ...],
    target: str | None,
    position: int,
    out: dict[str, Path],
    top: int,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Attribute an output of MODEL to the tokens of a text.

    Scores in the target's unit are parts of it: a positive score means that the token increases the
    target. The difference of their sum from the target is printed, and flagged as incomplete if it
    exceeds a tenth of the target. Compare methods with `interp evaluate faithfulness`.
    """
    texts = asked_texts(text, file)

    from interp.attribution.example import Example
    from interp.attribution.named import choose_methods

    chosen = choose_methods(methods or DEFAULT)
    voice = Voice.of_command(quiet=quiet)
    model = loaded(source, loading, imports)
    found, failed = [], 0
    for at, one in enumerate(texts):
        try:
            example = Example(model, one, target, position)
            require_tokens(example.special, one)
        except InterpError as error:
            if len(texts) == 1:
                raise
            failed += 1
            voice.error(f"text {at + 1}: {error}", error)
            continue
        for method in chosen:
            try:
                result = method.of(example)
            except InterpError as error:
                if len(texts) == len(chosen) == 1:
                    raise
                failed += 1
                voice.error(f"text {at + 1}, {method.label}: {error}", error)
                continue
            result = replace(result, provenance=dict(result.provenance) | {"text": at})
            found.append(result)
            print_attribution(result, top)
    warning = standing_warning(chosen) if found else ""
    if warning:
        voice.note(warning)
    if found:
        title = f"{model.name}: attribution of the output"
        write_attributions(found, out, title=title, warning=warning)
    if failed:
        click.get_current_context().exit(1)
