"""Find and explain the heads, MLPs and edges that do a task."""

GROUP = "Explain"
DEFAULT = "find"
