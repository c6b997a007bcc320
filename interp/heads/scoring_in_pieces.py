"""Scoring of pieces of the prompts by one of several processes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from interp.core import files
from interp.core.documents import parse_json
from interp.core.locks import locked
from interp.core.prompts import Prompts
from interp.core.protocols import Progress
from interp.core.shards import PIECES, Shard
from interp.heads.declaration import BoundAnalysis, Null
from interp.heads.one_call import equal_lengths
from interp.heads.pieces import SCORING, SHUFFLED, PerMetric, without_draws
from interp.heads.score_rows import PatternRun
from interp.heads.scoring import choose_engine, needs_draws, null_of
from interp.model.calls.sites import Site
from interp.model.random_weights import RandomWeights

if TYPE_CHECKING:
    from interp.model.model import Model


MOST = 64  # pieces of one run; each has at least one batch
_WHICH = {True: "measured prompts", False: "prompts"}  # indices of a piece, of measures or not

Piece = dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]
"""Indices of prompts, and their values `[prompt, head]`, by metric and name of the attention."""


class PromptPieces:
    """Pieces of one run, in the folder `pieces` of a results folder.

    Args:
        folder: the results folder.
        digest: identity of the run: model, metrics, prompts and options.
        model: the model, which decides how prompts are divided into batches.
        prompts: all prompts.
        batch_size: prompts per forward pass.
    """

    def __init__(
        self, folder: Path, digest: str, model: Model, prompts: Prompts, batch_size: int
    ) -> None:
        text = f"{digest} {batch_size} {MOST}"
        self.digest = hashlib.sha256(text.encode()).hexdigest()[:24]
        self.folder, self.number_of_prompts = folder / PIECES, len(prompts)
        ends = np.cumsum([0, *(len(batch) for batch in model.batches(prompts, batch_size))])
        batches = [range(a, b) for a, b in pairwise(map(int, ends))]
        # measures of layers run prompts of one length together, wherever they stand
        measured = [which for which, _ in equal_lengths(prompts, batch_size)]
        self.number = min(len(batches), MOST)
        self._batches = [_part(batches, at, self.number) for at in range(self.number)]
        self._measured = [_part(measured, at, self.number) for at in range(self.number)]
        self._read: dict[str, list[Piece]] = {}

    def own(self, shard: Shard) -> Sequence[int]:
        """Return the pieces of one of several processes."""
        return shard.of(range(self.number))

    def begun(self) -> bool:
        """Return whether there is any piece of this run."""
        return any(path.name.startswith(self.digest) for path in files.listed(self.folder))

    def compute(
        self,
        run: PatternRun,
        what: str,
        model: Model,
        prompts: Prompts,
        bounds: Sequence[BoundAnalysis],
        own: Iterable[int],
    ) -> int:
        """Compute the pieces of one pass that are not there yet; return their number."""
        files.require_writable(self.folder)
        computed = 0
        for at in own:
            path = self._file(what, at)
            with locked(self.folder.parent, [path.name]):  # another command may compute it now
                if self._piece(path) is None:
                    content = self._computed(run, what, model, prompts, bounds, at)
                    files.write_atomically(path, content)
                    computed += 1
        return computed

    def lacking(self, what: str, own: Iterable[int]) -> list[int]:
        """Return those of some pieces of a pass that are not there."""
        return [at for at in own if self._piece(self._file(what, at)) is None]

    def whole(self, what: str, bounds: Sequence[BoundAnalysis], model: Model) -> PerMetric | None:
        """Return the values of a pass on all prompts, or None where pieces are missing."""
        if what not in self._read:
            pieces = [self._piece(self._file(what, at)) for at in range(self.number)]
            there = [piece for piece in pieces if piece is not None]
            if len(there) < self.number:
                return None
            self._read[what] = there
        pieces = self._read[what]
        sites = {site.name: site for site in model.sites}
        scores: PerMetric = {b.label: {} for b in bounds}
        for piece in pieces:
            if not scores.keys() <= {label for label, _ in piece}:
                return None
            for (label, name), (which, values) in piece.items():
                if label not in scores:
                    continue
                site: Site = sites[name]
                empty = np.full((self.number_of_prompts, values.shape[1]), np.nan)
                scores[label].setdefault(site, empty)[which] = values
        return scores

    def masks(self, what: str) -> dict[str, str]:
        """Return the structure of the masks in the first batch of a pass; see `PatternRun`."""
        content = files.read_bytes(self._file(what, 0))
        return parse_json(_notes(content)["masks"])

    def remove(self) -> None:
        """Remove all pieces of this run, whose results are stored."""
        for path in files.listed(self.folder):
            if path.name.startswith(self.digest):
                path.unlink(missing_ok=True)

    def _file(self, what: str, at: int) -> Path:
        name = "".join(c if c.isalnum() else "-" for c in what)
        return self.folder / f"{self.digest}.{name}.{at + 1}-of-{self.number}.safetensors"

    def _computed(
        self,
        run: PatternRun,
        what: str,
        model: Model,
        prompts: Prompts,
        bounds: Sequence[BoundAnalysis],
        at: int,
    ) -> bytes:
        """Compute one piece of a pass, as a file."""
        arrays: dict[str, np.ndarray] = {}
        order: list[tuple[str, str, bool]] = []
        for measured, parts in ((False, self._batches[at]), (True, self._measured[at])):
            asked = [b for b in bounds if (b.analysis.kind == "measurement") == measured]
            if not asked:
                continue
            collected: dict[tuple[str, str], list[np.ndarray]] = {}
            for which in parts:  # one batch each, the same as in a run of all prompts
                values = run.of(model, prompts.part(which), asked, what)
                for label, by_site in values.items():
                    for site, x in by_site.items():
                        collected.setdefault((label, site.name), []).append(x)
            arrays[_WHICH[measured]] = np.array([i for which in parts for i in which], np.int64)
            for (label, name), x in collected.items():
                arrays[f"{label} of {name}"] = np.concatenate(x).astype(np.float64)
                order.append((label, name, measured))
        notes = {"order": json.dumps(order), "masks": json.dumps(run.masks)}
        return save(arrays, notes | {"sum": _checksum(arrays)})

    def _piece(self, path: Path) -> Piece | None:
        """Read a piece; None where it is missing, or damaged and set aside."""
        if not files.exists(path):
            return None
        try:
            content = files.read_bytes(path)
            arrays = load(content)
            notes = _notes(content)
            if notes["sum"] != _checksum(arrays):
                raise ValueError("its checksum differs")
            return {
                (label, name): (arrays[_WHICH[measured]], arrays[f"{label} of {name}"])
                for label, name, measured in parse_json(notes["order"])
            }
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            files.set_aside(path, error)
            return None


def _part(batches: Sequence[Sequence[int]], at: int, number: int) -> Sequence[Sequence[int]]:
    """Return the batches of one piece of several, in their order."""
    return batches[at * len(batches) // number : (at + 1) * len(batches) // number]


def _notes(content: bytes) -> dict[str, str]:
    """Return the texts in the head of a safetensors file."""
    size = int.from_bytes(content[:8], "little")
    return parse_json(content[8 : 8 + size])["__metadata__"]


def _checksum(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


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
