"""Tasks of compiled programs, whose circuits follow from their weights.

A prompt is a list of words for each program of the model. The two lists of a pair are drawn
independently, so that all programs differ, and only the outputs of the task's program are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from interp.causal.task import Task
from interp.circuits.contrast import ContrastTask
from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.model.content import same_tensors

if TYPE_CHECKING:
    from interp.model.model import Model
    from interp.planted.programs import JoinedPrograms

DRAWN = 64  # lists of words per pair, of which those with rare outputs are as likely as others
LEAST = 16  # pairs for which lists are drawn, so that some of them have a rare output


def make(model: Model, n: int, seed: int, name: str) -> ContrastTask:
    """Make the task of one program of a compiled model, with its circuit as the truth."""
    programs = programs_of(model)
    if programs is None or name not in programs.parts:
        raise OptionError(
            f"the task compiled:{name} is for the model compiled:{name} and for those that join it"
            f" with others (compiled:{name}+OTHER), and not for {model.name}; use one of them"
        )
    part = programs.parts[name]
    clean, corrupted, ends = _pairs(programs, name, n, np.random.default_rng([seed, 31]))
    columns = list(part.columns)
    with torch.no_grad():
        a, b = (programs.module(torch.tensor(x)).logits[..., columns] for x in (clean, corrupted))
    read = torch.arange(a.shape[1]) < torch.tensor(ends)[:, None]
    read[:, 0] = False
    towards = (a - b) * read[..., None]
    towards = towards / towards.square().sum((1, 2), keepdim=True)
    rows = towards[read]
    # a prompt's value is the mean over its rows
    rows = rows * torch.tensor(ends).sub(1).repeat_interleave(torch.tensor(ends) - 1)[:, None]
    none = (b[read] * rows).sum(-1)

    def share(logits: torch.Tensor, index: torch.Tensor, _: torch.Tensor | None) -> torch.Tensor:
        mine = rows.to(logits)[index]
        return (logits * mine).sum(-1) - none.to(logits)[index]

    task = Task(
        f"compiled:{name}",
        Prompts(tuple(map(tuple, clean)), f"words on which {name} answers"),
        tuple(tuple(range(1, end)) for end in ends),
        "share of the difference in the output",
        True,
        read_rows=share,
        vocabulary=part.columns,
        corrupted=Prompts(tuple(map(tuple, corrupted)), "words with another answer"),
        detail=f"{name} of {programs.name}",
        chance=0.0,
    )
    heads = tuple(sorted(node for node in part.nodes if node[0] == "L"))
    return ContrastTask(task).known({name: heads}, tuple(sorted(part.edges)))


def programs_of(model: Model) -> JoinedPrograms | None:
    """Return the compiled programs with exactly this model's weights; None if there are none."""
    from interp.planted.programs import joined

    kind, _, name = str(getattr(model.config, "name_or_path", "")).partition(":")
    if kind != "compiled":
        return None
    programs = joined(name)
    return programs if same_tensors(model.module, programs.module) else None


def _pairs(
    made: JoinedPrograms, name: str, n: int, rng: np.random.Generator
) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """Draw pairs with different answers, and the end of the shorter list of each."""
    from interp.planted.programs import PROGRAMS

    count, longest = DRAWN * max(n, LEAST), made.longest
    words = rng.integers(0, len(made.tokens), (2 * count, longest))
    ids = np.concatenate([np.full((2 * count, 1), made.bos), words], 1)
    ends = np.full(2 * count, longest + 1)
    if PROGRAMS[name].lengths:  # padding fills the shorter lists
        ends -= rng.integers(0, 3, 2 * count)
        ids = np.where(np.arange(longest + 1) < ends[:, None], ids, made.pad)
    columns = list(made.parts[name].columns)
    with torch.no_grad():
        outputs = made.module(torch.from_numpy(ids)).logits[..., columns].numpy().round(3)
    outputs[:, 0] = 0
    outputs[np.arange(longest + 1) >= ends[:, None]] = 0
    kinds = np.unique(outputs.reshape(2 * count, -1), axis=0, return_inverse=True)[1].ravel()
    share = 1 / np.bincount(kinds)[kinds]
    clean, corrupted = rng.choice(2 * count, (2, 16 * n), p=share / share.sum())
    end = np.minimum(ends[clean], ends[corrupted])
    differs = (outputs[clean] != outputs[corrupted]).any(2)
    differs &= np.arange(longest + 1) < end[:, None]
    kept = np.flatnonzero(differs.any(1))[:n]
    return ids[clean[kept]].tolist(), ids[corrupted[kept]].tolist(), end[kept].tolist()
