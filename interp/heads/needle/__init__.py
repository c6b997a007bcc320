"""Needles in haystacks: prompts that hide something, and which heads copy it out again.

    from interp import needle

    instances = needle.ids_instances(model, needles=8, lengths=(256, 1024), depths=(0, 0.5, 1))
    found = needle.copy_paste(model, instances)      # every head in every instance
    found.score()                                    # mean over instances, per (layer, head)
    needle.stability(found)                          # the same from parts of the instances

The experiments `retrieval` and `qr_retrieval` are these with options and a command. Importing this
loads no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.heads.needle.choice import select, stability
    from interp.heads.needle.choosing import Tried, try_tasks
    from interp.heads.needle.copying import CopyPaste, copy_paste
    from interp.heads.needle.ids import ids_instances
    from interp.heads.needle.instance import Instance
    from interp.heads.needle.question import QuestionMass, question_mass
    from interp.heads.needle.sentences import sentence_instances
    from interp.heads.needle.task_file import read_task
    from interp.heads.needle.text import Needle, haystack_ids, text_instances

_HOMES = {
    "choice": "select stability",
    "choosing": "Tried try_tasks",
    "copying": "CopyPaste copy_paste",
    "ids": "ids_instances",
    "instance": "Instance",
    "question": "QuestionMass question_mass",
    "sentences": "sentence_instances",
    "task_file": "read_task",
    "text": "Needle haystack_ids text_instances",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "CopyPaste",
    "Instance",
    "Needle",
    "QuestionMass",
    "Tried",
    "copy_paste",
    "haystack_ids",
    "ids_instances",
    "question_mass",
    "read_task",
    "select",
    "sentence_instances",
    "stability",
    "text_instances",
    "try_tasks",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
