from .named import (
    TASKS,
    About,
    contrast_of,
    is_file,
    known_task,
    make_contrast,
    split_templates,
    third,
)

__all__ = [
    "TASKS",
    "About",
    "contrast_of",
    "is_file",
    "known_task",
    "make_contrast",
    "split_templates",
    "third",
]
