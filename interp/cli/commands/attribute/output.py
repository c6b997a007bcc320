"""Command `interp attribute`: attribution of a model output to the tokens of a text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from interp.cli.attributions import ENDS, attributions
from interp.cli.inputs import ASKED
from interp.cli.making import command
from interp.cli.name_types import ATTRIBUTION_NAMES
from interp.cli.run import Run
from interp.cli.vocabulary import Spelling

if TYPE_CHECKING:
    from interp.attribution.result import Attribution
    from interp.model.model import Model


@command(
    loading=("chat",),
    inputs={"texts": ASKED},
    options={
        "file": Spelling(help="File with one text per line, in place of --text."),
        "methods": Spelling(
            type=ATTRIBUTION_NAMES,
            default=("attn_lrp", "occlusion:how=mean"),
            help="A method of `interp list methods`, several separated by commas, or a .py file "
            "that declares one. Repeatable.",
        ),
    },
    out=ENDS,
    example="interp attribute gpt2 --text 'The keys are on the' -m occlusion -o a.html",
)
def output(
    run: Run,
    model: Model,
    texts: list[str],
    methods: list[str],
    *,
    target: str | None = None,
    position: int = -1,
) -> Iterator[Attribution]:
    """Attribute an output of MODEL to the tokens of a text.

    Scores in the target's unit are parts of it: a positive score means that the token increases the
    target. The difference of their sum from the target is printed, and flagged as incomplete if it
    exceeds a tenth of the target. Compare methods with `interp evaluate faithfulness`.

    Args:
        target: number to explain: WORD or token:WORD, token:WORD|OTHER for a logit difference,
            id:N, class:N, or similarity:TEXT; by default the model's top prediction.
        position: output position of the target; negative counts from the end.
    """
    from interp.attribution.declaration import choose_methods
    from interp.attribution.example import Example

    examples = [
        (i, one, partial(Example, model, one, target, position)) for i, one in enumerate(texts)
    ]
    title = f"{model.name}: attribution of the output"
    yield from attributions(run, examples, choose_methods(methods), title)
