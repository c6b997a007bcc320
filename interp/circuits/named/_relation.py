"""Heads that find the word on which another one depends, on sentences that did not choose how."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from interp.circuits.named._on_text import why_no_text
from interp.circuits.named._task import without_scores
from interp.core.errors import OptionError, UnknownName
from interp.core.prompts import Prompts
from interp.core.resources import folder
from interp.heads.trials import Lab, Trials
from interp.syntax.attention import word_attention
from interp.syntax.conllu import read_conllu
from interp.syntax.gold import Gold, hits_of
from interp.syntax.relations import best_offset

if TYPE_CHECKING:
    from interp.model.model import Model

FEWEST = 8  # dependents of the relation in each half


def finds_relation(model: Model, lab: Lab, file: str, relation: str, sentences: int) -> Trials:
    """Score every head by the share of dependents whose head word it finds, per sentence."""
    if sentences < 4:
        raise OptionError(f"sentences={sentences}: at least 4, of which half choose directions")
    path = folder("data") / "treebank.conllu" if file == "treebank" else Path(file)
    treebank = read_conllu(path).first(sentences)
    given = Prompts.of([s.text or " ".join(s.words) for s in treebank], model)
    why = why_no_text(model, Prompts(given.ids[:24], "sentences"))
    if lab.notes and why:
        return without_scores(model, why)
    attention = word_attention(model, treebank, progress=lab.progress)
    gold = Gold.of(attention.sentences)
    mine = gold.relation == relation
    if not mine.any():
        raise UnknownName("relation", relation, sorted(set(gold.relation.astype(str))))
    judging = gold.sentence % 2 == 1
    choose, judge = mine & ~judging, mine & judging
    if min(choose.sum(), judge.sum()) < FEWEST:
        raise OptionError(
            f"{relation} has {int(choose.sum())} and {int(judge.sum())} dependents in the two "
            f"halves of the sentences; {FEWEST} in each are needed: give more sentences"
        )
    hits = hits_of(attention, gold).argmax
    direction = hits[:, :, choose].mean(-1).argmax(-1)  # per head
    by_head = hits[np.arange(len(hits)), direction][:, judge].astype(float)
    offset = best_offset(gold, choose)
    fixed = gold.offset(offset)[judge].astype(float)
    which = [np.flatnonzero(gold.sentence[judge] == s) for s in np.unique(gold.sentence[judge])]
    values = np.stack([by_head[:, at].mean(-1) for at in which])
    null = np.array([fixed[at].mean() for at in which])
    per_site, beside = {}, {}
    for site in model.sites:
        rows = [
            k
            for k, (stack, layer, _) in enumerate(attention.places)
            if (stack, layer) == (site.stack, site.layer)
        ]
        if rows:
            per_site[site] = torch.as_tensor(values[:, rows])
            beside[site] = torch.as_tensor(null)[:, None].expand(-1, len(rows)).clone()
    notes = {
        "dependents": f"{len(fixed)} in {len(which)} sentences; {int(choose.sum())} others chose",
        "fixed distance": f"{offset:+d} words finds {float(fixed.mean()):.1%}",
    }
    return Trials(per_site, beside, "the best fixed distance, on the same words", notes)
