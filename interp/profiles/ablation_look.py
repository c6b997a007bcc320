"""Heads replaced by their mean, or by what their description predicts, and the predictions then.

Each head is changed alone. In place of its output stands its mean over the corpus, or the output
of another pattern: that of a row model for the keys off the sink, while the attention on the sink
stays as it is. Runs restart at the head's layer where the model allows it, and logits are computed
at the sampled queries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.causal.game.replacement import Replacement
from interp.causal.game.replay import Wanted, capture_for_replay, pick, run
from interp.causal.game.verify import reuse_of
from interp.core.prompts import Prompts
from interp.profiles.explain import Description
from interp.profiles.first_look import Look
from interp.profiles.gradient_look import entries_of
from interp.profiles.log_linear import logits_of_position
from interp.profiles.reading import Reading
from interp.profiles.rows_read import AttentionRows, sink_of
from interp.profiles.rules import names_in, repeated_in
from interp.profiles.second_look import CONTROLS, RUNGS, RowModels
from interp.profiles.steps import StoredArrays

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.profiles.corpus import TextWindow
    from interp.profiles.predictions import PredictedText

DESCRIBED = ("position", "rules", "tokens", "swapped_document")
"""Row models put in place of a pattern; the last one is the control that should fail."""
CHANGES = ("mean", *DESCRIBED)
_ENTRIES = 2**26  # logits that are held at once
_ROWS = 256  # queries of a window whose row models are held at once


def _continued(text: Reading) -> Bool[np.ndarray, " pos"]:
    """Return tokens that follow a token as they did earlier: what an induction head predicts."""
    seen: set[tuple[int, int]] = set()
    repeated = np.zeros(len(text), bool)
    for at in range(1, len(text)):
        pair = int(text.tokens[at - 1]), int(text.tokens[at])
        repeated[at] = pair in seen
        seen.add(pair)
    return repeated


TOKEN_KINDS: dict[str, Callable[[Reading], Any]] = {
    "continued": _continued,
    "repeated": repeated_in,
    "new": lambda text: ~repeated_in(text),
    "names": names_in,
    "pieces": lambda text: np.r_[False, text.word[1:] == text.word[:-1]],
    "content": lambda text: text.kinds["content"],
    "function": lambda text: text.kinds["function"],
    "delimiters": lambda text: text.kinds["delimiter"],
}
"""Kinds of predicted tokens; a token may be of several."""
KIND_PHRASES = {
    "continued": "tokens that follow as they did before",
    "repeated": "words that occurred before",
    "new": "words that are new in the text",
    "names": "names",
    "pieces": "later pieces of a word",
    "content": "content words",
    "function": "function words",
    "delimiters": "delimiters",
}
WITHOUT_TEXT = ("continued", "repeated", "new")


@dataclass(frozen=True, eq=False)
class AblationSums(StoredArrays):
    """Sums over the sampled queries of each window of one group.

    Args:
        change: increase of the loss of the predicted tokens if a head is replaced by its mean, in
            nats: over all tokens, then of each of `TOKEN_KINDS`.
        tokens: number of these tokens.
        divergence: KL divergence of the model's predictions with each of `CHANGES` from those of
            the unchanged model, in nats.
        queries: number of sampled queries.
    """

    change: Float[np.ndarray, "window head kind"]
    tokens: Float[np.ndarray, "window kind"]
    divergence: Float[np.ndarray, "window head change"]
    queries: Float[np.ndarray, " window"]


def ablation_look(
    look: Look,
    windows: Sequence[TextWindow],
    predicted: Sequence[PredictedText],
    others: Sequence[TextWindow],
    description: Description,
    heads: Sequence[tuple[Site, int]],
    mean: Float[np.ndarray, " entry"],
    advance: Callable[[], Any],
) -> AblationSums:
    """Change some heads, one at a time, on a group of windows."""
    changes = _Changes(look, description, heads, mean)
    sums = []
    for window, mine, other in zip(windows, predicted, others, strict=True):
        sums.append(changes.of(window, mine, other))
        advance()
    return AblationSums(*(np.stack(x) for x in zip(*sums, strict=True)))


class _Changes:
    """Runs of windows with changed heads."""

    def __init__(
        self,
        look: Look,
        description: Description,
        heads: Sequence[tuple[Site, int]],
        mean: Float[np.ndarray, " entry"],
    ) -> None:
        self.look, self.heads = look, heads
        at = torch.tensor([look.places[site].start + h for site, h in heads], dtype=torch.long)
        self.used = (description.rules[at] != 0).any(0)
        part = {name: value[at] for name, value in vars(description).items()}
        self.description = dataclasses.replace(
            description, **part | {"rules": part["rules"][:, self.used]}
        )
        self.mean = {
            site: torch.from_numpy(mean[place]).float().view(site.n_heads, site.d_v)
            for site, place in entries_of(look.sites).items()
        }
        self.reuse = reuse_of(look.model)

    @torch.no_grad()
    def of(
        self, text: TextWindow, predicted: PredictedText, other: TextWindow
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the sums of one window, in the order of the fields of `AblationSums`."""
        window = predicted.window
        model, n, queries = self.look.model, len(window.ids), window.queries
        outputs = self._outputs(window, other)
        inputs = model.inputs(Prompts((window.ids,)))
        wanted = Wanted(torch.as_tensor(queries, device=model.device), (1, n))
        clean = capture_for_replay(model, inputs, self.reuse, wanted=wanted)
        log_clean = pick(clean.logits, wanted, self.reuse).float().log_softmax(-1)
        at = np.searchsorted(predicted.places, queries).clip(max=len(predicted.places) - 1)
        scored = torch.as_tensor(predicted.places[at] == queries)
        at = at[scored.numpy()]
        truth = torch.as_tensor(predicted.tokens[at])
        kinds = self._kinds(text, predicted.truth[at])
        change = np.zeros((len(self.heads), len(kinds)))
        divergence = np.zeros((len(self.heads), len(CHANGES)))
        each = max(1, _ENTRIES // log_clean.numel()) if self.reuse.fold else 1
        for k, (site, h) in enumerate(self.heads):
            for first in range(0, len(CHANGES), each):
                values = outputs[k][first : first + each]
                gates = torch.ones(len(values), site.n_heads)
                gates[:, h] = 0
                fixed = torch.zeros(len(values), site.n_heads, *values.shape[1:])
                fixed[:, h] = values
                raw = run(
                    model,
                    inputs,
                    {site: gates.to(model.device)},
                    Replacement({site: fixed.to(model.device)}),
                    first=site,
                    clean=clean,
                    reuse=self.reuse,
                    copies=len(values),
                    wanted=wanted,
                )
                logits = pick(raw, wanted, self.reuse, len(values)).float()
                for i, mine in enumerate(logits.view(len(values), *log_clean.shape)):
                    log = mine.log_softmax(-1)
                    divergence[k, first + i] = float(_divergence(log_clean, log))
                    if first + i == 0:
                        more = ((log_clean - log)[scored.to(log.device)]).cpu()
                        more = more[torch.arange(len(truth)), truth].double().numpy()
                        change[k] = kinds @ more
        return change, kinds.sum(1), divergence, np.array(float(len(queries)))

    def _kinds(
        self, window: TextWindow, after: Int[np.ndarray, " token"]
    ) -> Float[np.ndarray, "kind token"]:
        """Return which scored tokens count: all, and those of each kind."""
        text = self.look.reader.read(window.ids)
        masks = [np.ones(len(after))]
        for name, kind in TOKEN_KINDS.items():
            known = self.look.reader.has_text or name in WITHOUT_TEXT
            masks.append(kind(text)[after].astype(float) if known else np.zeros(len(after)))
        return np.stack(masks)

    def _outputs(
        self, window: TextWindow, other: TextWindow
    ) -> list[Float[Tensor, "change pos d_v"]]:
        """Return what stands in place of the output z of every head, for each of `CHANGES`."""
        n = len(window.ids)
        models = cache(lambda start: self._models(window, other, start))
        sink = sink_of(window, self.look.reader.special)
        outputs: list[Tensor] = [torch.zeros(0)] * len(self.heads)

        def take(site: Site, call: Call, real: Tensor) -> None:
            mine = [(k, h) for k, (where, h) in enumerate(self.heads) if where == site]
            if not mine:
                return
            mixed = []
            for start in range(0, n, _ROWS):
                rows = torch.arange(start, min(start + _ROWS, n))
                mixed.append(_mixed(call, rows, sink, mine, models(start)))
                if n > _ROWS:  # the masks of one part of a long window at a time
                    models.cache_clear()
            described = torch.cat(mixed, 2)
            for at, (k, h) in enumerate(mine):
                even = self.mean[site][h].expand(1, n, -1)
                outputs[k] = torch.cat([even, described[:, at]])

        self.look.model.read(Prompts((window.ids,)), take, last=1)
        return outputs

    def _models(self, window: TextWindow, other: TextWindow, start: int) -> RowModels:
        """Return the row models of the heads for some queries of a window."""
        n = len(window.ids)
        part = dataclasses.replace(window, queries=np.arange(start, min(start + _ROWS, n)))
        masks = self.look.masks(part)[self.used].float()
        tokens = np.resize(np.asarray(other.ids), n).tolist()
        swapped = self.look.masks(part, tokens)[self.used].float()
        position = logits_of_position(self.description.position, part.queries, n)
        return RowModels(self.look, part, self.description, masks, swapped, position)


def _mixed(
    call: Call,
    rows: Int[Tensor, " row"],
    sink: Bool[Tensor, " pos"],
    heads: Sequence[tuple[int, int]],
    models: RowModels,
) -> Float[Tensor, "described head row d_v"]:
    """Return the outputs of some queries under each row model, of each head of one attention."""
    pattern = call.pattern(rows.to(call.z.device))
    read = AttentionRows.read(call, rows, sink)
    logs = [[*_chosen(models.of(slice(k, k + 1), read.visible))] for k, _ in heads]
    outputs = []
    for at in range(len(DESCRIBED)):
        changed = pattern.clone()
        for mine, (_, h) in zip(logs, heads, strict=True):
            model = read.weight[h, :, None] * torch.exp(mine[at][0])
            changed[0, h] += (model - read.mass[h]).to(changed)
        outputs.append(call.mix(changed)[0, [h for _, h in heads]].float().cpu())
    return torch.stack(outputs)


def _chosen(models: Iterator[Tensor]) -> Iterator[Tensor]:
    """Return the row models that are put in place of a pattern."""
    named = dict(zip((*RUNGS, *CONTROLS), models, strict=True))
    return (named[name] for name in DESCRIBED)


def _divergence(
    log_p: Float[Tensor, "row d_vocab"], log_q: Float[Tensor, "row d_vocab"]
) -> Float[Tensor, ""]:
    """Return the KL divergence of q from p, summed over rows.

    As both sum to 1, it is the sum of p (exp(-r) - 1 + r) with r = log p - log q, whose terms are
    not negative, so that a small divergence is not lost in rounding.
    """
    r = log_p - log_q
    return (log_p.exp() * (torch.expm1(-r) + r)).sum(dtype=torch.double)
