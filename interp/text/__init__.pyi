from . import chains, context, graphs

__all__ = ["chains", "context", "graphs"]
