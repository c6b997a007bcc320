"""Find the heads, MLPs and edges that do a task, and what makes a head attend."""

GROUP = "Explain"
DEFAULT = "find"
