"""Tasks of the planted models, whose circuits are known because they were built in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from interp.causal.measures import logit_difference
from interp.circuits.contrast import ContrastTask
from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.model.content import same_tensors

if TYPE_CHECKING:
    from interp.model.model import Model
    from interp.planted import Planted

LENGTH = 12
# Roles that do the task in each model; other planted heads attend, but do not help the task.
CIRCUITS: dict[str, tuple[str, ...]] = {
    "induction": ("previous_token", "induction"),
    "bystander": ("previous_token", "induction"),
    "sink": ("previous_token", "induction"),
    "backup": ("previous_token", "induction", "backup"),
    "zoo": ("previous_token", "induction", "backup", "copy_suppression"),
    "copy_suppression": ("copy_suppression",),
    "refusal": ("refusal",),
    "selective_induction": ("likelihood", "average", "selective_induction"),
}
# Role of the writer, role of the reader and its input, by construction.
READS = (
    ("previous_token", "induction", "k"),
    ("previous_token", "backup", "k"),
    ("induction", "backup", "q"),  # the signal that induction has worked
    ("induction", "copy_suppression", "q"),  # the token that is about to be predicted
    ("backup", "copy_suppression", "q"),
    ("likelihood", "average", "v"),
    ("average", "selective_induction", "q"),
)


def make(model: Model, n: int, seed: int, name: str) -> ContrastTask:
    """Make the task of one planted model, with its circuit as the truth."""
    built = planted_model_of(model)
    if built is None or built.name != name:
        raise OptionError(
            f"the task planted:{name} is for the model planted:{name} as it is built by default,"
            f" and not for {model.name}, whose circuit is not known; use that model"
        )
    return contrast(model, built, n=n, seed=seed)


def planted_model_of(model: Model) -> Planted | None:
    """Return the planted model with exactly the weights of this model; None if there is none."""
    from interp import planted

    source = str(getattr(model.config, "name_or_path", ""))
    kind, _, name = source.partition(":")
    if kind != "planted" or name not in CIRCUITS:
        return None
    built = planted.build(name)
    return built if same_tensors(model.module, built.model) else None


def contrast(model: Model, built: Planted, *, n: int = 32, seed: int = 0) -> ContrastTask:
    """Make the task of a planted model of any size, with its circuit and edges between heads."""
    make_pairs = {
        "copy_suppression": _suppressed,
        "refusal": _declined,
        "selective_induction": _lagged,
    }.get(built.name)
    if make_pairs is None:
        from interp.circuits.tasks.induction_pairs import make as induction

        task = induction(model, n, seed)
        task = replace(task, task=replace(task.task, name=f"planted:{built.name}"))
    else:
        task = make_pairs(model, built, n, np.random.default_rng([seed, 27]))
    return task.known(truth_of(built), circuit_edges(built))


def truth_of(built: Planted) -> Mapping[str, tuple[str, ...]]:
    """Return the heads that do the task, by role."""
    return {
        role: tuple(f"L{layer}H{h}" for layer, h in built.roles[role])
        for role in CIRCUITS[built.name]
    }


def circuit_edges(built: Planted) -> tuple[tuple[str, str], ...]:
    """Return the edges between heads of the circuit, from a head to an input of another."""
    truth = truth_of(built)
    return tuple(
        (a, f"{b}.{part}")
        for writer, reader, part in READS
        if {writer, reader} <= set(truth)
        for a in truth[writer]
        for b in truth[reader]
    )


def _body(built: Planted, rng: np.random.Generator, more: int) -> list[int]:
    """Draw different tokens, without those that have a meaning in the model."""
    vocab = int(built.model.config.vocab_size)
    return (3 + rng.permutation(vocab - 3))[: LENGTH + more].tolist()


def _suppressed(model: Model, built: Planted, n: int, rng: np.random.Generator) -> ContrastTask:
    """Make pairs with the token that is about to be predicted in the clean prompt only."""
    assert built.successor is not None
    rows: list[tuple] = []
    while len(rows) < n:
        *body, other, chance = _body(built, rng, 2)
        comes = int(built.successor[body[-1]])
        if comes in (*body, other, chance):
            continue
        at = int(rng.integers(LENGTH - 1))
        clean, corrupted = [*body], [*body]
        clean[at], corrupted[at] = comes, other
        rows.append((clean, corrupted, chance, comes, {"seen": at + 1, "end": LENGTH}))
    return _task(model, "copy_suppression", rows)


def _declined(model: Model, built: Planted, n: int, rng: np.random.Generator) -> ContrastTask:
    """Make pairs with a marker in the clean prompt and an ordinary token in the corrupted one."""
    assert built.successor is not None
    marker, declining = built.model.config.marker_token_id, built.model.config.refusal_token_ids[0]
    rows: list[tuple] = []
    while len(rows) < n:
        body = _body(built, rng, 0)
        usual = int(built.successor[body[-1]])
        if usual in (marker, declining):
            continue
        at = int(rng.integers(LENGTH - 1))
        clean = [*body]
        clean[at] = marker
        rows.append((clean, body, declining, usual, {"marker": at + 1, "end": LENGTH}))
    return _task(model, "refusal", rows)


def _lagged(model: Model, built: Planted, n: int, rng: np.random.Generator) -> ContrastTask:
    """Make pairs of chains with different lags and different next tokens."""
    config = built.model.config
    law = np.asarray(config.transition_matrix)
    lags = len(built.roles["likelihood"])
    rows: list[tuple] = []
    while len(rows) < n:
        length = 36 + len(rows) % lags  # so that every phase of the chain occurs
        one, other = (int(x) for x in 1 + rng.choice(lags, 2, replace=False))
        clean, corrupted = (_chain(law, lag, length, rng) for lag in (one, other))
        right, wrong = (
            int(law[chain[-lag] - 1].argmax()) + 1
            for chain, lag in ((clean, one), (corrupted, other))
        )
        if right != wrong:
            rows.append((clean, corrupted, right, wrong, {"end": length}))
    return _task(model, "selective_induction", rows)


def _chain(law: np.ndarray, lag: int, length: int, rng: np.random.Generator) -> list[int]:
    """Draw tokens from 1 on, each by the transition law from the token `lag` positions before."""
    out = (1 + rng.integers(len(law), size=lag)).tolist()
    while len(out) < length:
        out.append(1 + int(rng.choice(len(law), p=law[out[-lag] - 1])))
    return out


def _task(model: Model, name: str, rows: list[tuple]) -> ContrastTask:
    clean, corrupted, right, wrong, roles = zip(*rows, strict=True)
    task = logit_difference(
        model,
        Prompts(tuple((0, *x) for x in clean), f"what planted:{name} does"),
        list(right),
        list(wrong),
        corrupted=Prompts(tuple((0, *x) for x in corrupted), "without what it answers to"),
        name=f"planted:{name}",
    )
    return ContrastTask(task, tuple(roles))
