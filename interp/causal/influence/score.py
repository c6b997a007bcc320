"""AttentionInfluence: scores of texts by the effect of a set of heads on their loss.

The loss of each text is measured with all heads and with the given heads masked; texts with the
largest increase depend on the heads most. With retrieval heads, masked to uniform attention, the
relative difference is the score by which Hua et al. 2025 ("AttentionInfluence", arXiv 2505.07293)
select pretraining data. Random sets of heads provide the null.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.causal.game.game import Game
from interp.causal.game.interventions import MASKS
from interp.causal.game.players import Players
from interp.causal.influence.result import TextRows, TextScores, in_blocks
from interp.causal.influence.texts import LONG, Cut, Long, Text, count_texts, text_windows, texts_of
from interp.causal.measures import loss
from interp.core.errors import NonFiniteError, OptionError, UnknownName
from interp.core.prompts import Prompts, bos_id
from interp.core.protocols import Progress
from interp.model.content import model_provenance
from interp.model.identity import identity_of
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.head_arguments import HeadsLike
    from interp.model.model import Model

Array = np.ndarray
_BLOCK = 64  # number of texts that are sorted by length and run together


@takes_model
def attention_influence(
    model: Model,
    texts: Path | Iterable[Any],
    heads: HeadsLike,
    *,
    kind: str = "uniform-attention",
    stack: str | None = None,
    n_random: int = 8,
    seed: int = 0,
    max_length: int | None = None,
    long: Long = "truncate",
    max_tokens: int = 4096,
    out: str | os.PathLike | None = None,
    progress: Progress | None = None,
) -> TextScores:
    """Score each text by the relative increase of its loss with the heads masked.

    `relative` = (loss_masked - loss) / loss per text (as in AttentionInfluence; the reference
    implementation is not public, and the formula is taken from a description of the paper). It
    depends on the text's initial loss, so rank texts within one domain and length. A score depends
    only on its own text: other texts in the batch change it by rounding only. The cost is 2 +
    n_random forward passes per text, minus the layers below the first masked head.

    Args:
        model: the model to run.
        texts: a `Path` to a .txt file (one text per line) or a .jsonl file (fields `text` and
            perhaps `id`), or an iterable of texts, mappings with `text`, or lists of token ids.
            They are read on demand, in constant memory with `out`.
        heads: the heads to mask, such as retrieval or induction heads.
        kind: the form of masking: "uniform-attention" over the visible keys, as in the paper, or
            "zero". Means and resampling would make a text's score depend on other texts.
        stack: the stack of the heads.
        n_random: number of random sets of as many other heads in the same layers (of all heads of a
            layer if the others are too few), drawn with `seed`; 0 for none. `z` compares with them.
        seed: seed of the random sets.
        max_length: maximum tokens of a text per run; by default the model's context.
        long: handling of longer texts: cut to their first tokens ("truncate"), or split into
            windows ("windows") whose losses are averaged over tokens; the column `cut` describes
            it.
        max_tokens: maximum positions per forward pass.
        out: a file of JSON lines, written once every text is scored. Until then finished blocks of
            texts are stored in `unfinished.sqlite` beside it: the same call resumes after the last
            one, and gives the same file as an uninterrupted run.
        progress: callback that receives the number of finished texts, and their total if it is
            known.

    Raises:
        OptionError: no head or every head is named, the model is not causal, or `out` contains
            other scores.
        PromptError: a file has no texts or a malformed line (its number is given), or text is given
            for a model without a tokenizer.

    Unit: relative loss of a text.

    Cost: 2 forward passes per text, and one for each random set.

    Null: random sets of as many heads in the same layers.

    Not for: comparing domains or lengths: a relative loss depends on the initial loss.

    Reference: "AttentionInfluence" (arXiv 2505.07293); implemented from a description, since its
    code is not public.
    """
    if kind not in MASKS:
        raise UnknownName("kind of masking", kind, MASKS)
    if long not in LONG:
        raise UnknownName("way with long texts", long, LONG)
    if model.kind != "causal":
        raise OptionError(
            f"texts are scored by next-token loss, but {model.name} is "
            f"{model.kind}; use a causal model"
        )
    if model.active_edits:
        raise OptionError(
            f"heads are edited already ({', '.join(model.active_edits)}); leave the edit block, "
            f"since texts are scored with all heads and with the named heads masked"
        )
    if n_random < 0 or n_random == 1:
        raise OptionError(f"n_random={n_random}; a null needs at least 2 random sets (0 omits it)")
    if max_tokens < 1:
        raise OptionError(f"max_tokens={max_tokens}; it must be at least 1")
    source = texts_of(texts)
    players, masked = _masked(model, heads, stack)
    sets = _random_sets(players, masked, n_random, seed)
    limit = _limit(model, max_length)
    run = _Run(model, players, _gates([masked, *sets], len(players)), kind, max_tokens)
    provenance = model_provenance(model)
    names = players.labels
    settings = {
        "model": model.name,
        "heads": [names[i] for i in masked],
        "kind": kind,
        "random_sets": [[names[i] for i in chosen] for chosen in sets],
        "seed": seed,
        "context": limit,
        "long": long,
        "max_tokens": max_tokens,
        "block": _BLOCK,
        **identity_of(model),
    }
    provenance_of_run = {
        "versions": provenance["versions"],
        "made_by": "interp.causal.attention_influence",
    }
    total, done, bos = count_texts(texts), 0, bos_id(model)
    with TextRows(None if out is None else Path(out), settings, provenance_of_run) as rows:
        for block in in_blocks(source, _BLOCK):
            if not rows.hold(block):
                cuts = [text_windows(model, text, limit, long, bos) for text in block]
                rows.add(run.rows(block, cuts))
            done += len(block)
            if progress is not None:
                progress(f"{model.name}, texts", done, done if total is None else total)
        return rows.scores()


class _Run:
    """Losses of texts: clean, with the heads masked, and with each random set masked."""

    def __init__(
        self, model: Model, players: Players, gates: Tensor, kind: str, max_tokens: int
    ) -> None:
        self.model, self.players, self.gates = model, players, gates
        self.kind, self.max_tokens = kind, max_tokens

    def rows(self, block: Sequence[Text], cuts: Sequence[Cut]) -> list[dict[str, Any]]:
        """Return one row for each text of a block, in order."""
        windows = [(i, w) for i, c in enumerate(cuts) for w in c.windows]
        windows.sort(key=lambda x: len(x[1]))  # of similar length, so that there is little padding
        total = np.zeros((len(block), 1 + len(self.gates)))
        count = np.zeros(len(block), dtype=np.int64)
        wrong: dict[int, str] = {}
        for pack in self._packs([w for _, w in windows]):
            owners = [windows[j][0] for j in pack]
            part = [windows[j][1] for j in pack]
            try:
                losses = self._losses(part)
            except NonFiniteError:
                losses = self._one_by_one(part, owners, wrong)
            for owner, window, values in zip(owners, part, losses, strict=True):
                total[owner] += values * (len(window) - 1)
                count[owner] += len(window) - 1
        text_rows = []
        for i, (text, c) in enumerate(zip(block, cuts, strict=True)):
            values = total[i] / count[i] if count[i] else np.full(total.shape[1], math.nan)
            text_rows.append(_row(text, c, int(count[i]), values, c.reason or wrong.get(i, "")))
        return text_rows

    def _packs(self, windows: Sequence[Sequence[int]]) -> list[range]:
        """Yield the windows, sorted by length, that share a forward pass."""
        ends = [0]
        for j, window in enumerate(windows):
            if j > ends[-1] and len(window) * (j + 1 - ends[-1]) > self.max_tokens:
                ends.append(j)
        return [range(a, b) for a, b in pairwise([*ends, len(windows)]) if a < b]

    def _losses(
        self, windows: Sequence[tuple[int, ...]]
    ) -> Float[Array, "window clean_masked_random"]:
        task = loss(self.model, Prompts(tuple(windows)), name="next_token_loss")
        game = Game(
            self.model,
            task,
            players=self.players,
            kind=self.kind,
            max_tokens=self.max_tokens,
            check=False,
        )
        return torch.cat([game.clean[None], game.values(self.gates)]).numpy().T

    def _one_by_one(
        self, windows: Sequence[tuple[int, ...]], owners: Sequence[int], wrong: dict[int, str]
    ) -> Float[Array, "window clean_masked_random"]:
        """Run a batch one text at a time and record the texts whose loss is not finite."""
        losses = np.full((len(windows), 1 + len(self.gates)), math.nan)
        for j, window in enumerate(windows):
            try:
                losses[j] = self._losses([window])[0]
            except NonFiniteError:
                wrong[owners[j]] = "the loss is NaN or infinite"
        return losses


def _row(
    text: Text, c: Cut, n_scored: int, values: Float[Array, " clean_masked_random"], reason: str
) -> dict[str, Any]:
    clean, masked, *random = values.tolist()
    known = clean > 0  # also false for NaN
    if not known and not reason:
        reason = "the loss is 0, so a relative difference is not defined"
    relative = (masked - clean) / clean if known else math.nan
    null = [(x - clean) / clean if known else math.nan for x in random]
    mean = float(np.mean(null)) if null else math.nan
    sd = float(np.std(null, ddof=1)) if len(null) > 1 else math.nan
    return {
        "number": text.number,
        "id": text.id,
        "sha256": text.sha256,
        "n_tokens": c.n_tokens,
        "n_scored": n_scored,
        "cut": c.how,
        "loss": clean,
        "loss_masked": masked,
        "difference": masked - clean,
        "relative": relative,
        "null_mean": mean,
        "null_sd": sd,
        "z": (relative - mean) / sd if sd > 0 else math.nan,
        "reason": reason,
    }


def _masked(model: Model, heads: Any, stack: str | None) -> tuple[Players, list[int]]:
    """Return all heads as players, and the numbers of those to mask."""
    if not isinstance(heads, (str, tuple)):  # a single head is a tuple
        heads = list(heads)
    if not heads:
        raise OptionError("no head is named, so nothing would be masked; name at least one")
    everyone = Players.of(model, "heads", stack=stack)
    chosen = Players.of(model, {"masked": heads}, stack=stack)
    masked = [
        int(everyone.member[site][h])
        for site, index in chosen.member.items()
        for h in (index >= 0).nonzero().flatten().tolist()
    ]
    if len(masked) == sum(site.n_heads for site in model.sites):
        raise OptionError(
            f"all {len(masked)} heads of {model.name} are named, so no attention would be left; "
            f"name only the heads to test"
        )
    return everyone, sorted(masked)


def _random_sets(
    players: Players, masked: Sequence[int], n_random: int, seed: int
) -> list[list[int]]:
    """Draw different sets of as many heads in each layer; fewer if there are not enough."""
    rng = np.random.default_rng(seed)
    pools = []
    for index in players.member.values():
        here = index.tolist()
        masked_here = [i for i in here if i in set(masked)]
        others = [i for i in here if i not in set(masked)]
        if masked_here:
            pools.append((others if len(others) >= len(masked_here) else here, len(masked_here)))
    possible = math.prod(math.comb(len(pool), n) for pool, n in pools)
    sets: dict[tuple[int, ...], None] = {}
    tries = 0
    while len(sets) < min(n_random, possible) and tries < 100 * n_random:
        tries += 1
        drawn = tuple(
            sorted(int(i) for pool, n in pools for i in rng.choice(pool, n, replace=False))
        )
        if drawn != tuple(masked):
            sets.setdefault(drawn)
    return [list(chosen) for chosen in sets]


def _gates(out: Sequence[Sequence[int]], n: int) -> Float[Tensor, "coalition player"]:
    gates = torch.ones(len(out), n, dtype=torch.double)
    for row, players in enumerate(out):
        gates[row, list(players)] = 0
    return gates


def _limit(model: Model, max_length: int | None) -> int | None:
    if max_length is not None and max_length < 2:
        raise OptionError(
            f"max_length={max_length}; it must be at least 2 tokens, so that one is predicted"
        )
    known = [x for x in (max_length, model.context, model.limit) if x is not None]
    if max_length is not None and min(known) < max_length:
        raise OptionError(
            f"max_length={max_length}; {model.name} reads at most {min(known)} tokens at once"
        )
    return min(known, default=None)
