"""Remove heads, save the smaller checkpoint, or check a saved one."""

GROUP = "Change"
DEFAULT = "heads"
