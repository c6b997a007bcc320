"""Effects of heads computed with plain hooks of torch, and documents to compute them on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

import interp
from interp.model.segments import special_ids
from interp.profiles import Profile
from interp.profiles.corpus import DocumentCorpus, TextWindow, sample_corpus
from interp.profiles.first_look import Look
from interp.profiles.rules import chosen_rules
from interp.profiles.token_model import token_vectors

FEW = ["previous_token", "induction"]
ALL = 99  # more queries than a document has


def repeats(n: int, seed: int, vocab: int = 64) -> list[tuple[int, ...]]:
    """Return documents of a random sequence that comes twice, after token 0, at any distance."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n):
        length, gap = int(rng.integers(7, 12)), int(rng.integers(0, 9))
        drawn = rng.permutation(np.arange(1, vocab)).tolist()
        row, between, rest = drawn[:length], drawn[11 : 11 + gap], drawn[20 : 28 - gap]
        found.append((0, *row, *between, *row, *rest))
    return found


def plain(model: interp.Model, n: int, length: int) -> list[tuple[int, ...]]:
    """Return random documents without special tokens."""
    special = set(special_ids(model))
    known = [i for i in range(3, model.d_vocab) if i not in special]
    rng = np.random.default_rng(2)
    return [tuple(rng.choice(known, length).tolist()) for _ in range(n)]


@contextmanager
def given_to(
    module: torch.nn.Module, change: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[None]:
    """Change what a module is given, by a plain hook of torch."""
    handle = module.register_forward_pre_hook(lambda _, args: (change(args[0]), *args[1:]))
    try:
        yield
    finally:
        handle.remove()


def projection(model: interp.Model, layer: int) -> torch.nn.Module:
    return model.module.get_submodule(model.site(layer).projection or "")


def windows_of(rows: Sequence, model: interp.Model, **options: Any) -> tuple[TextWindow, ...]:
    return sample_corpus(DocumentCorpus(rows), model, **options).windows


def means(model: interp.Model, windows: Sequence[TextWindow]) -> dict[int, torch.Tensor]:
    """Return the mean over all positions of what each output projection is given."""
    found: dict[int, torch.Tensor] = {}
    for site in model.sites:
        seen: list[torch.Tensor] = []

        def keep(x: torch.Tensor, seen: list = seen) -> torch.Tensor:
            seen.append(x[0].detach())
            return x

        with torch.no_grad(), given_to(projection(model, site.layer), keep):
            for window in windows:
                model.module(input_ids=torch.tensor([window.ids]))
        found[site.layer] = torch.cat(seen).double().mean(0).float()
    return found


def loss_of(model: interp.Model, window: TextWindow) -> torch.Tensor:
    """Return the loss of every next token."""
    logits = model.module(input_ids=torch.tensor([window.ids])).logits[0, :-1]
    wanted = torch.tensor(window.ids[1:])
    return torch.nn.functional.cross_entropy(logits, wanted, reduction="none")


def score(found: Profile, head: str, metric: str, column: str = "score") -> float:
    about = found.description(head)
    frame = found.to_pandas()
    mine = frame[(frame["layer"] == about["layer"]) & (frame["head"] == about["head"])]
    return float(mine.set_index("metric").loc[metric, column])


def look_of(model: interp.Model, windows: Sequence[TextWindow]) -> Look:
    ids = np.concatenate([window.ids for window in windows])
    return Look(
        model, model.sites, chosen_rules(FEW, False), token_vectors(model, ids), [ids.tolist()]
    )
