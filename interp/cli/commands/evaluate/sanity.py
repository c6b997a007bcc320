"""Command `interp evaluate sanity`: whether attributions depend on the weights, and their cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.cli.inputs import read_labels
from interp.cli.making import command
from interp.cli.name_types import ATTRIBUTION_NAMES
from interp.cli.run import Run, say_notes
from interp.cli.value_types import PromptFile
from interp.cli.vocabulary import Spelling

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows
    from interp.model.model import Model


@command(
    inputs={"classes": read_labels("classes")},
    options={
        "methods": Spelling(
            type=ATTRIBUTION_NAMES,
            default="attn_lrp,gradient_x_input,raw_attention,rollout,input_norm",
        ),
        "classes": Spelling(
            type=PromptFile(),
            metavar="FILE",
            help="File with the class of each text: also refit a read-out after the top tokens are "
            "removed (ROAR without training the model again).",
        ),
    },
    after=say_notes,
    example="interp evaluate sanity gpt2 --file texts.txt -m attn_lrp,rollout",
)
def sanity(
    run: Run,
    model: Model,
    texts: Path,
    methods: list[str],
    targets: str | None = None,
    *,
    classes: Any = None,
    seed: int = 0,
    progress: Any = None,
) -> list[ResultRows]:
    """Check attribution methods over the texts of FILE (one per line), and measure their cost.

    The weights are randomised block by block from the last one down: scores that keep their order
    do not depend on what the model learned. Passes and seconds are counted per text.

    Args:
        texts: file with one text per line.
        methods: methods of `interp list methods`.
        targets: number to explain, as for `interp evaluate faithfulness`.
        classes: the class of each text.
        seed: seed of all random draws.
    """
    from interp.attribution.evaluation.cost import method_cost
    from interp.attribution.evaluation.randomisation import randomisation_check
    from interp.attribution.evaluation.refit import refit_check

    shared: Any = {"seed": seed, "progress": progress}
    checks = {
        "randomisation": randomisation_check(model, texts, methods, targets, **shared),
        "cost": method_cost(model, texts, methods, targets),
    }
    if classes is not None:
        checks["refit"] = refit_check(model, texts, classes, methods, targets, **shared)
    for name, one in checks.items():
        run.write(one, f"{name}.json")
    return [*checks.values()]
