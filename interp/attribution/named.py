"""Methods by the names that people write: `rollout:residual=0.3`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from interp.attribution.declaration import Method
from interp.attribution.example import Example
from interp.attribution.result import Attribution
from interp.core.errors import OptionError, UnknownName
from interp.core.registry import method as find


@dataclass(frozen=True, eq=False)
class Chosen:
    """A method with its options set; `label` is what results call it."""

    method: Method
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The method's name with the options that are not the default."""
        changed = {n: v for n, v in self.options.items() if v != self.method.options[n].default}
        told = ",".join(f"{n}={v}" for n, v in sorted(changed.items()))
        return f"{self.method.name}:{told}" if told else self.method.name

    def of(self, example: Example) -> Attribution:
        """Explain an example."""
        return self.method.of(example, **self.options)


def choose(given: Iterable[str | Method | Chosen]) -> list[Chosen]:
    """Methods as the command line writes them, each once; commas may stand between.

    Raises:
        UnknownName: no such method or option, with the nearest.
        OptionError: a value that does not fit, a method asked for twice, or none at all.
    """
    found: list[Chosen] = []
    for item in given:
        if isinstance(item, Chosen):
            found.append(item)
        elif isinstance(item, Method):
            found.append(Chosen(item))
        else:
            found += [_parse(text) for text in _split(item)]
    labels = [c.label for c in found]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise OptionError(f"a method is asked for twice: {', '.join(twice)}")
    if not found:
        raise OptionError("no attribution method is named; `interp methods` lists them")
    return found


def _split(text: str) -> list[str]:
    """`a,b:x=1,y=2,c` is three methods: `y=2` is an option of `b`."""
    found: list[str] = []
    for part in filter(None, text.split(",")):
        if found and ":" in found[-1] and "=" in part and ":" not in part.partition("=")[0]:
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


def _parse(text: str) -> Chosen:
    name, _, rest = text.partition(":")
    method, given = find(name), {}
    for part in filter(None, rest.split(",")):
        option, equals, value = part.partition("=")
        if not equals:
            raise OptionError(f"{text!r}: write options as {name}:option=value")
        if option not in method.options:
            raise UnknownName(f"option of {name}", option, method.options or ["(none)"])
        given[option] = method.options[option].parse(value)
    return Chosen(method, given)
