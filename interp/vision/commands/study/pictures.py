"""Command `interp study pictures`: heads of a model that reads pictures inside text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

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
    usual="",
    inputs={"inputs": Input(lambda run: _asked(run).inputs(run.model), OF_PROMPTS, _check)},
    options={
        "text": Spelling(multiple=True, help="Text beside each picture or sound, or one for all."),
        "layer": Spelling(type=FROM_1),
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
    by: Literal["attention", "class_token", "flow"] | None = None,
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
        by: with -m dropping and schedule: what ranks the tokens: attention of the text (the default
            of dropping), that of the tower's class token, or the flow map of VFlowOpt (the default
            of schedule).
        seed: seed of halves and random tokens.
    """
    from interp.vision import language as found_in

    wanted = [_token(model, answer) for answer in answers]
    ranked: Any = {} if by is None else {"by": by}
    result: Any
    if method == "sinks":
        result = found_in.visual_sinks(model, inputs, seed=seed)
    elif method == "grounding":
        result = found_in.grounding_heads(model, inputs, wanted, seed=seed)
    elif method == "dropping":
        result = found_in.drop_tokens(model, inputs, wanted, layer=layer, seed=seed, **ranked)
    elif method == "schedule":
        result = found_in.pruning_schedule(model, inputs, wanted, keep=0.5, seed=seed, **ranked)
    elif method == "redistribution":
        result = found_in.redistribution(model, inputs, wanted, seed=seed)
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
