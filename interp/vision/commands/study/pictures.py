"""Command `interp study pictures`: heads of a model that reads pictures inside text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.vocabulary import FROM_1, Spelling
from interp.core.errors import OptionError
from interp.core.tokens import encoded_text
from interp.heads.sweep.prompts import PicturePrompts

if TYPE_CHECKING:
    from interp.model.model import Model

OF_PROMPTS = ("images", "audio", "text")


def _asked(run: Run) -> PicturePrompts:
    asked = PicturePrompts.asked(*(run.values[name] for name in OF_PROMPTS))
    if asked is None or not asked.images:
        raise OptionError("give the pictures by --image, and the text beside them by --text")
    return asked


def _check(run: Run) -> None:
    answers, images = len(run.values["answers"]), len(_asked(run).images)
    if run.values["method"] != "sinks" and answers != images:
        raise OptionError(f"{answers} --answer for {images} pictures; give one for each")


@command(
    inputs={"inputs": Input(lambda run: _asked(run).inputs(run.model), OF_PROMPTS, _check)},
    options={
        "text": Spelling(multiple=True, help="Text beside each picture or sound, or one for all."),
        "layer": Spelling(type=FROM_1),
        "drop": Spelling(type=click.FLOAT, multiple=True),
        "n_heads": Spelling(type=FROM_1),
    },
    example="interp study pictures models/llava -m contrast --image a.png --answer cat "
    "--text 'The animal is a'",
)
def pictures(
    run: Run,
    model: Model,
    inputs: Any,
    method: Literal["sinks", "grounding", "dropping", "schedule", "contrast", "redistribution"],
    *,
    answers: Sequence[str] = (),
    layer: int = 2,
    drop: Sequence[float] = (0.5,),
    by: Literal["attention", "class_token", "flow"] | None = None,
    tau: float = 20.0,
    keep_sinks: float = 0.6,
    last_layer: bool = False,
    n_heads: int = 4,
    seed: int = 0,
) -> Any:
    """Analyse how MODEL reads pictures inside text.

    Each --image is a prompt, with one --text each or one for all; the answer follows the last
    token. Sinks and grounding heads are found on half of the prompts and judged on the other half.

    Args:
        inputs: the prompts.
        method: sinks: tokens of the picture that are attention sinks, and the heads on them.
            grounding: heads that attend to the picture, ablated. dropping: loss without the least
            attended tokens (FastV). schedule: layers in which they are dropped, chosen (VFlowOpt).
            contrast: answers against a run on less of the picture (no image, AvisC).
            redistribution: answers with attention moved from sinks to the rest of the picture
            (VAR).
        answers: the answer to each prompt: its first token, or a token id. Not for sinks.
            Repeatable.
        layer: with -m dropping: first layer without the dropped tokens.
        drop: with -m dropping and schedule: share of the picture's tokens that is dropped, of a
            schedule in the mean over layers. Repeatable.
        by: with -m dropping and schedule: what ranks the tokens: attention of the text (the default
            of dropping), that of the tower's class token, or the flow map of VFlowOpt (the default
            of schedule).
        tau: with -m sinks and redistribution: smallest ratio of a value to the root mean square.
        keep_sinks: with -m redistribution: factor of the attention on sinks.
        last_layer: with -m redistribution: also edit the last layer.
        n_heads: with -m grounding: number of heads.
        seed: seed of halves and random tokens.
    """
    from interp.vision import language as found_in

    wanted = [_token(model, answer) for answer in answers]
    ranked: Any = {} if by is None else {"by": by}
    result: Any
    if method == "sinks":
        result = found_in.visual_sinks(model, inputs, tau=tau, seed=seed)
    elif method == "grounding":
        result = found_in.grounding_heads(model, inputs, wanted, n_heads=n_heads, seed=seed)
    elif method == "dropping":
        result = found_in.drop_tokens(
            model, inputs, wanted, layer=layer, drop=drop, seed=seed, **ranked
        )
    elif method == "schedule":
        if len(drop) != 1:
            raise OptionError(f"-m schedule takes one share of dropped tokens, not {len(drop)}")
        result = found_in.pruning_schedule(
            model, inputs, wanted, keep=1 - drop[0], seed=seed, **ranked
        )
    elif method == "redistribution":
        result = found_in.redistribution(
            model, inputs, wanted, tau=tau, keep=keep_sinks, last_layer=last_layer, seed=seed
        )
    else:
        result = found_in.contrast_pictures(model, inputs, wanted, seed=seed)
    run.write(result, *(f"{method}.{end}" for end in ("json", "csv", "html")))
    return result


def _token(model: Model, answer: str) -> int:
    """Return the first token of an answer, or the id that it is."""
    if answer.isdecimal():
        return int(answer)
    if model.tokenizer is None:
        raise OptionError(f"--answer {answer}: {model.name} has no tokenizer; give a token id")
    ids = encoded_text(model.tokenizer, answer, add_special_tokens=False)["input_ids"]
    if not ids:
        raise OptionError(f"--answer {answer!r} has no tokens; give a word or a token id")
    return int(ids[0])
