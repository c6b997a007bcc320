from .choice import selection_stability
from .choosing import try_tasks
from .copying import copy_paste
from .families import family_instances
from .ids import ids_instances
from .instance import Instance
from .question import question_mass
from .task_file import read_task
from .text import text_instances

__all__ = [
    "Instance",
    "copy_paste",
    "family_instances",
    "ids_instances",
    "question_mass",
    "read_task",
    "selection_stability",
    "text_instances",
    "try_tasks",
]
