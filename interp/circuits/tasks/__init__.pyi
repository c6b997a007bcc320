from .named import TASKS, make_contrast

__all__ = ["TASKS", "make_contrast"]
