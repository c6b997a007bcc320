"""Measurements that a model behind an address allows, found out by asking it."""

from __future__ import annotations

from dataclasses import dataclass

from interp.core.errors import InterpError
from interp.core.request import served_model
from interp.text.context.endpoint import Endpoint

BEFORE, AFTER = "The cat sat on the mat. The cat sat on", " the mat."


@dataclass(frozen=True)
class Possible:
    """One kind of computation, and whether a served model gives what it needs.

    Args:
        what: the computation.
        works: whether it is possible.
        why: the call that does it, or what is missing.
    """

    what: str
    works: bool
    why: str


@dataclass(frozen=True)
class EndpointCheck:
    """Measurements that a served model allows.

    Args:
        endpoint: the completions endpoint that was asked.
        models: names of the models that the server offers.
        possible: what is possible, and what is not.
    """

    endpoint: Endpoint
    models: tuple[str, ...]
    possible: tuple[Possible, ...]

    @property
    def passed(self) -> bool:
        """True if anything can be computed."""
        return any(one.works for one in self.possible)

    def __str__(self) -> str:
        """Format it as lines of text."""
        others = f" of {', '.join(self.models)}" if len(self.models) > 1 else ""
        lines = [f"{self.endpoint.url}: model {self.endpoint.model}{others}"]
        width = max(len(one.what) for one in self.possible)
        for one in self.possible:
            lines.append(f"  {one.what:<{width}}  {'yes' if one.works else 'no'}: {one.why}")
        return "\n".join(lines)


def check_endpoint(url: str) -> EndpointCheck:
    """Ask a server what can be computed of its model.

    Cost: Three requests.
    """
    base, name, models = served_model(url)
    where = Endpoint(f"{base}/completions", name)
    return EndpointCheck(where, models, (*_by_log_probabilities(where), NEEDS_WEIGHTS))


def _by_log_probabilities(where: Endpoint) -> tuple[Possible, ...]:
    """Return what log-probabilities of given answers allow."""
    calls = {
        "which sentences an answer rests on": "interp.text.context.endpoint_sources",
        "faithfulness of scores by removal": "interp.text.context.endpoint_faithfulness",
    }
    try:
        where.repeated(BEFORE, AFTER)
    except InterpError as error:
        return tuple(Possible(what, False, str(error)) for what in calls)
    return tuple(Possible(what, True, call) for what, call in calls.items())


NEEDS_WEIGHTS = Possible(
    "heads, patterns, edits, gradients",
    False,
    "an endpoint does not give them: load the weights, or let a hook of the server record its"
    " attention, and score the recorded run",
)
