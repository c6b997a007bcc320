from .choice import select, selection_stability
from .choosing import TriedTask, try_tasks
from .copying import CopyPaste, copy_paste
from .families import FAMILIES, family_instances
from .ids import ids_instances
from .instance import Instance
from .question import question_mass
from .sentences import sentence_instances
from .task_file import read_task
from .text import Needle, haystack_ids, text_instances

__all__ = [
    "FAMILIES",
    "CopyPaste",
    "Instance",
    "Needle",
    "TriedTask",
    "copy_paste",
    "family_instances",
    "haystack_ids",
    "ids_instances",
    "question_mass",
    "read_task",
    "select",
    "selection_stability",
    "sentence_instances",
    "text_instances",
    "try_tasks",
]
