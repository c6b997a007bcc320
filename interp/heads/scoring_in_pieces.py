"""Scoring of pieces of the prompts by one of several processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from interp.core.prompts import Prompts
from interp.core.protocols import Progress
from interp.heads.declaration import BoundAnalysis, Null
from interp.heads.pieces import SCORING, SHUFFLED, without_draws
from interp.heads.prompt_pieces import PromptPieces
from interp.heads.score_rows import PatternRun
from interp.heads.scoring import choose_engine, needs_draws, null_of
from interp.model.random_weights import RandomWeights

if TYPE_CHECKING:
    from interp.model.model import Model


def score_pieces(
    model: Model,
    bounds: Sequence[BoundAnalysis],
    prompts: Prompts,
    pieces: PromptPieces,
    own: Sequence[int],
    *,
    null: Null,
    seed: int,
    batch_size: int,
    engine: str,
    random: RandomWeights,
    progress: Progress,
) -> bool:
    """Compute some pieces of the prompts, and return whether all pieces of the run are there.

    If they are, `score_each` with these pieces gives the scores of all prompts.
    """
    prompts.check(model)
    chosen = choose_engine(model, prompts, batch_size, engine, may_fuse=True)
    run = PatternRun(model, prompts, seed, batch_size, chosen, progress)
    kinds = {b.label: null_of(b, null, model) for b in bounds}
    pieces.compute(run, SCORING, model, prompts, bounds, own)
    passes = [SCORING]
    if shuffled := [b for b in bounds if kinds[b.label] == "shuffled-tokens"]:
        pieces.compute(run, SHUFFLED, model, run.shuffled_prompts(), shuffled, own)
        passes.append(SHUFFLED)
    drawn_for = [b for b in bounds if needs_draws(kinds[b.label], null, model)]
    asked = run.asked_draws(drawn_for, run.about()["prompts_hash"])
    short = without_draws(asked, random, drawn_for)
    for draw in range(len(random)) if short else ():
        what = random.pass_name(draw)
        passes.append(what)
        if pieces.lacking(what, own):
            pieces.compute(run, what, random.draw(draw), prompts, short, own)
    return not any(pieces.lacking(what, range(pieces.number)) for what in passes)
