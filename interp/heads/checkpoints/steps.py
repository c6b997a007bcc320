"""Checkpoints of a training run, in order of their training steps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from interp import bundled
from interp.core.documents import parse_json
from interp.core.errors import LoadError, OptionError

_NAMED = re.compile(r"(?:^|[-_./@])(?:checkpoint|ckpt|global_?step|step|iter)[-_]?(\d+)$", re.I)
LEAST = 2  # checkpoints of a curve


def training_step(source: str | Path) -> int | None:
    """Return the training step of a checkpoint, or None where nothing states it.

    It is `global_step` in the checkpoint's `trainer_state.json`, or else the number at the end of
    its name, as in `checkpoint-500`, `step_500` or `model@step500`.
    """
    path = Path(source).expanduser()
    state = path / "trainer_state.json"
    if state.is_file():
        try:
            step = parse_json(state.read_text(encoding="utf-8")).get("global_step")
        except (OSError, ValueError, AttributeError) as error:
            raise LoadError(f"{state} cannot be read: {error}; repair or remove it") from error
        if isinstance(step, int):
            return step
    # a link has a name of its own beside that of the folder it leads to
    names = (path.absolute().name, path.resolve().name) if path.is_dir() else (str(source),)
    match = next(filter(None, map(_NAMED.search, names)), None)
    return None if match is None else int(match[1])


def named_step(name: str) -> tuple[str, int] | None:
    """Return the run and the step that the end of a name states; None where it states none."""
    match = _NAMED.search(name)
    return None if match is None else (name[: match.start()], int(match[1]))


def checkpoints_of(source: str | Path) -> list[tuple[int, str]]:
    """Return step and folder of every checkpoint of a run, in order of steps."""
    text = str(source)
    if text.startswith("bundled:"):
        paths = bundled.checkpoints(text.removeprefix("bundled:"))
        return in_step_order([(step, str(path)) for step, path in paths.items()], text)
    path = Path(source).expanduser()
    if not path.is_dir():
        raise OptionError(
            f"{text} is not a folder of checkpoints; give one, several checkpoints, or a bundled "
            "model that has checkpoints, such as bundled:induction"
        )
    folders = sorted(each.parent for each in path.glob("*/config.json"))
    steps = [(training_step(folder), str(folder)) for folder in folders]
    return in_step_order([(step, each) for step, each in steps if step is not None], text)


def in_step_order(found: Sequence[tuple[int, str]], where: str) -> list[tuple[int, str]]:
    """Return checkpoints in order of steps."""
    if len(found) < LEAST:
        raise OptionError(
            f"{where} has {len(found)} checkpoints whose training step is known; a curve needs at "
            f"least {LEAST}. The step is global_step in trainer_state.json, or the number at the "
            "end of a name such as checkpoint-500"
        )
    listed = sorted(found)
    for (step, one), (other, two) in pairwise(listed):
        if step == other:
            raise OptionError(
                f"{one} and {two} are both of step {step}; a curve has one checkpoint per step"
            )
    return listed


def steps_of(sources: Iterable[str | Path]) -> list[int] | None:
    """Return the steps of sources that are checkpoints of one run; None if they are not.

    They are if there are at least three, each states its step, and all steps differ.
    """
    steps = [training_step(source) for source in sources]
    stated = [step for step in steps if step is not None]
    complete = len(stated) == len(steps) >= 3 and len(set(stated)) == len(stated)
    return stated if complete else None
