"""Names with options as people write them: `local_window:width=8,rollout`."""

from __future__ import annotations

from interp.core.errors import OptionError


def split_names(text: str) -> list[str]:
    """Split a list of names: `a,b:x=1,y=2,c` is three, since `y=2` is an option of `b`."""
    found: list[str] = []
    for part in filter(None, text.split(",")):
        if found and ":" in found[-1] and "=" in part and ":" not in part.partition("=")[0]:
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


def parse_name(text: str) -> tuple[str, dict[str, str]]:
    """Split `name:option=value,option=value` into the name and the text of each option.

    Raises:
        OptionError: an option without a value, or one that is given twice.
    """
    name, _, rest = text.partition(":")
    given: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        option, equals, value = part.partition("=")
        if not equals:
            raise OptionError(f"{text!r}: write options as {name}:option=value")
        if option in given:
            raise OptionError(f"{text!r}: the option {option} is given twice; give it once")
        given[option] = value
    return name, given
