"""What the experiments on needles share: the instances of their options, and notes about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interp.errors import OptionError
from interp.needle.copying import CopyPaste
from interp.needle.ids import ids_instances
from interp.needle.instance import Instance, evenly, spread
from interp.needle.task_file import read_task
from interp.needle.text import text_instances

if TYPE_CHECKING:
    from interp.model.model import Model


def instances_of(
    model: Model,
    seed: int,
    task: str,
    needles: int,
    lengths: tuple[int, int, int],
    depths: int,
    answer: int,
) -> list[Instance]:
    """The instances that options ask for.

    Raises:
        OptionError: a task that is neither `ids` nor a JSONL file, or a number below 1.
        PromptError: a task that does not fit the model.
    """
    if needles < 1:
        raise OptionError(f"needles={needles}: at least 1")
    about: dict[str, Any] = {"lengths": evenly(*lengths), "depths": spread(depths)}
    if task == "ids":
        return ids_instances(model, needles=needles, answer=answer, seed=seed, **about)
    if not task.endswith(".jsonl"):
        raise OptionError(f"task={task!r}: it is 'ids' or a .jsonl file of needles")
    texts, haystack = read_task(task)
    return text_instances(model, texts[:needles], haystack, **about)


def report(model: Model, tried: CopyPaste, counted: CopyPaste) -> dict[str, Any]:
    """What was tried and how the model did."""
    right = tried.right
    whole = int((right >= 1).sum())
    lengths = sorted({x.length for x in tried.instances})
    needles = len({x.needle for x in tried.instances})
    depths = len({x.depth for x in tried.instances})
    return {
        "instances": f"{len(right)}: {needles} needles, prompts of "
        f"{', '.join(map(str, lengths))} tokens, {depths} depths",
        "answered": f"{whole} of {len(right)} instances wholly, "
        f"{float(right.mean()):.2f} of the answers' tokens",
        "counted": f"{len(counted.instances)} of {len(right)} instances",
    }
