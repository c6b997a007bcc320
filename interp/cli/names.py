"""Names with options, several in one argument."""

from __future__ import annotations


def split_names(text: str) -> list[str]:
    """`a,b:x=1,y=2,c` is three metrics: `y=2` is an option of `b`."""
    found: list[str] = []
    for part in filter(None, text.split(",")):
        if found and ":" in found[-1] and "=" in part and ":" not in part.partition("=")[0]:
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found
