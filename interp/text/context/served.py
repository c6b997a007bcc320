"""What can be computed of a model behind an address, found out by asking it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from interp.core.errors import LoadError
from interp.text.context.endpoint import NOISE, Endpoint, asked

BEFORE, AFTER = "The cat sat on the mat. The cat sat on", " the mat."
NEEDS_WEIGHTS = (
    "heads, patterns, edits, gradients",
    "an endpoint does not give them: load the weights, or let a hook of the server record its"
    " attention, and score the recorded run",
)


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
    """What a served model allows.

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


def check_endpoint(url: str, model: str = "", *, timeout: float = 60.0) -> EndpointCheck:
    """Ask a server what can be computed of its model.

    Args:
        url: address of the completions endpoint, or of what stands before `/completions`; a part
            after # names the model.
        model: name of the model there; the first that the server offers by default.
        timeout: seconds to wait for a reply.

    Raises:
        LoadError: the address is none of http, nothing answers there, or no model is named and the
            server does not list its models.

    Cost: Four requests.
    """
    base, _, named = url.partition("#")
    base = base.rstrip("/").removesuffix("/completions").removesuffix("/chat")
    if not urlsplit(base).path:
        base += "/v1"
    where = Endpoint(f"{base}/completions", model or named, timeout)
    try:
        models, why = _models(where, base), ""
    except LoadError as error:
        models, why = (), str(error)
    if not where.model:
        if not models:
            raise LoadError(f"{why}; name the model after #, as in {base}#NAME")
        where = replace(where, model=models[0])
    return EndpointCheck(where, models, (*_by_log_probabilities(where), Possible(
        NEEDS_WEIGHTS[0], False, NEEDS_WEIGHTS[1])))  # fmt: skip


def _models(where: Endpoint, base: str) -> tuple[str, ...]:
    """Return the names that a server lists.

    Raises:
        LoadError: it does not answer, or its answer is no list of models.
    """
    listed = asked(f"{base}/models", None, where.timeout)
    try:
        return tuple(str(one["id"]) for one in listed["data"])
    except (KeyError, TypeError) as error:
        raise LoadError(f"{base}/models does not list models") from error


def _by_log_probabilities(where: Endpoint) -> tuple[Possible, ...]:
    """Return what log-probabilities of given answers allow."""
    calls = {
        "which sentences an answer rests on": "interp.text.context.endpoint_sources",
        "faithfulness of scores by removal": "interp.text.context.endpoint_faithfulness",
    }
    try:
        first, second = (where.log_probability(BEFORE, AFTER) for _ in range(2))
    except LoadError as error:
        return tuple(Possible(what, False, str(error)) for what in calls)
    noise = abs(first - second)
    if noise > NOISE:
        why = f"two requests of the same text differ by {noise:.3g} nats"
        return tuple(Possible(what, False, why) for what in calls)
    return tuple(Possible(what, True, call) for what, call in calls.items())
