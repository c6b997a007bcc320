from .notebook import Explorer

__all__ = ["Explorer"]
