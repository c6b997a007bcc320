"""Details of heads that need the loaded model: strongest examples, written tokens, like patterns.

Examples are rows of attention on the default prompts of `interp score` and, for models with a
tokenizer, on lines of plain text. What a head writes is its mean output on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.bundled import plain_texts
from interp.core.errors import UnreadableAttention
from interp.core.prompts import Prompts
from interp.core.registry import METRICS
from interp.core.ties import ordered_by
from interp.core.tokens import separate_words, words
from interp.heads.roles.decide import base_name
from interp.model.segments import prompt_segments
from interp.report.atlas.document import Atlas, Card, Example, Model, Nearest, Writes

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.model.model import Model as LoadedModel

MOST = 1024  # heads of a model whose cards get examples; of larger models, those with a role
PROMPTS, LINES, LONGEST = 6, 6, 48  # default prompts, lines of text, tokens of each
EXAMPLES = 3  # of a head
TOKENS = 8  # raised and lowered
PAIRS, KEYS = 3, 4  # examples of the OV and QK circuit, and tokens of each
ALIKE, LEAST = 3, 0.5  # heads with like patterns, and their least similarity
SINK = 1  # first tokens that a head without a metric is not shown for
_ALIKE = "overlap of attention patterns (mean Bhattacharyya coefficient)"


def add_model(atlas: Atlas, model: LoadedModel) -> bool:
    """Add to the cards of a model what its weights and patterns show."""
    entry = found_model(atlas, model)
    notes = atlas.setdefault("notes", [])
    if entry is None:
        notes.append(f"{model.name} is loaded, but there are no scores of it, so it has no cards.")
        return False
    prompts = _prompts(model)
    if not prompts:
        notes.append(f"{model.name} does not read tokens, so its heads have no examples.")
        return False
    wanted = _wanted(entry)
    if len(wanted) < len(entry["heads"]):
        notes.append(
            f"{model.name}: examples and written tokens of the {len(wanted):,} heads with a role, "
            f"of {len(entry['heads']):,}."
        )
    reading = _Reading(model, entry, prompts, wanted)
    reading.read()
    for label, more in reading.cards().items():
        card = entry["cards"].setdefault(label, {})
        near = [*more.pop("nearest", []), *card.get("nearest", [])]
        card.update(more)
        if near:
            card["nearest"] = near
    return True


def found_model(atlas: Atlas, model: LoadedModel) -> Model | None:
    """Return the loaded model's part of an atlas, by its weights; None if there is none."""
    return next((one for one in atlas["models"] if _is(one, model)), None)


def _is(one: Model, model: LoadedModel) -> bool:
    """Tell whether a model of the atlas has the weights of the loaded one."""
    provenance = one["provenance"]
    stated = [provenance, *provenance.get("by metric", {}).values()]
    weights = {x.get("content_hash") for x in stated if isinstance(x, dict)} - {None}
    differing = provenance.get("by metric", {}).get("content_hash", {})
    weights |= set(differing.values()) if isinstance(differing, dict) else set()
    return model.content_hash in weights if weights else one["name"] == model.name


def _wanted(found: Model) -> set[str]:
    if len(found["heads"]) <= MOST:
        return {place["label"] for place in found["heads"]}
    pairs = zip(found["heads"], found["roles"], strict=True)
    return set([place["label"] for place, role in pairs if role not in (None, "unclear")][:MOST])


def _prompts(model: LoadedModel) -> list[tuple[int, ...]]:
    """Return the prompts of the examples; none for a model that does not read tokens."""
    prompts = default_ids(model)
    if prompts and model.tokenizer is not None:
        lines = plain_texts(model)[:LINES]
        longest = min(x for x in (LONGEST, model.limit) if x)
        prompts += [ids[:longest] for ids in Prompts.of(lines, model).ids if len(ids) > 1]
    return prompts


def default_ids(model: LoadedModel) -> list[tuple[int, ...]]:
    """Return the beginnings of the first default prompts; none without tokens."""
    from interp.heads.scoring import default_prompts

    prompts = default_prompts(model, 0)
    return [ids[:LONGEST] for ids in prompts.ids[:PROMPTS]] if isinstance(prompts, Prompts) else []


class _Reading:
    """One pass over the prompts: rows of attention, mean outputs, and like patterns."""

    def __init__(
        self, model: LoadedModel, found: Model, prompts: list[tuple[int, ...]], wanted: set[str]
    ) -> None:
        self.model, self.found, self.prompts, self.wanted = model, found, prompts, wanted
        self.names = [stack["name"] for stack in found["stacks"]]
        self.metric = {label: _metric(found["cards"].get(label, {})) for label in wanted}
        self.best: dict[str, list[Example]] = {}
        self.sums: dict[str, Any] = {}
        self.rows = 0
        self.roots: dict[str, list[np.ndarray]] = {}
        self.spoken = sorted({token for ids in prompts for token in ids})

    def heads(self, stack: str, layer: int) -> Iterator[tuple[int, str]]:
        """Yield number and label of the wanted heads of one layer."""
        for place in self.found["heads"]:
            here = (self.names[place["stack"]], place["layer"]) == (stack, layer)
            if here and place["label"] in self.wanted:
                yield place["head"], place["label"]

    def read(self) -> None:
        """Run the model on every prompt."""
        written = self._writes_logits()
        for ids in self.prompts:
            tokens = words(self.model, ids)
            cache = self.model.capture([list(ids)], ("pattern", "result"), to="cpu")
            for (stack, layer), pattern in cache.by_site("pattern").items():
                weights = pattern[0].float().numpy()
                if weights.shape[1:] != (len(ids), len(ids)):
                    continue  # of another sequence, as in cross attention
                for head, label in self.heads(stack, layer):
                    self._example(label, np.array(ids), tokens, weights[head])
                    self.roots.setdefault(label, []).append(np.sqrt(weights[head]).ravel())
            for (stack, layer), result in cache.by_site("result").items():
                if (stack, layer) in written:
                    total = result[0].float().sum(0)
                    for head, label in self.heads(stack, layer):
                        self.sums[label] = self.sums.get(label, 0) + total[head]
            self.rows += len(ids)

    def _writes_logits(self) -> set[tuple[str, int]]:
        from interp.model.locate.weights import predicting_sites

        try:
            return {(site.stack, site.layer) for site in predicting_sites(self.model)}
        except UnreadableAttention:
            return set()

    def _example(
        self, label: str, ids: np.ndarray, tokens: Sequence[str], weights: Float[np.ndarray, "q k"]
    ) -> None:
        """Keep the strongest row of one head on one prompt."""
        name = self.metric[label]
        at = np.arange(len(ids))
        if name is None:
            values = weights[:, SINK:].max(1, initial=0.0)
        else:
            bound = METRICS.parse(name)
            named = prompt_segments(self.model, ids)
            target = bound.analysis.predicate(at[:, None], at[None, :], ids, named, **bound.options)
            # a row in which every visible key is a target scores 1 for any head
            open_rows = (target < np.tril(np.ones(weights.shape, bool))).any(1)
            values = np.where(open_rows, (weights * target).sum(1), 0.0)
        query = int(values.argmax())
        if values[query] <= 0:
            return
        row = [round(float(x), 4) for x in weights[query, : query + 1]]
        one: Example = {
            "metric": name,
            "tokens": list(tokens),
            "query": query,
            "value": round(float(values[query]), 4),
            "weights": row,
        }
        examples = ordered_by([*self.best.get(label, []), one], lambda x: x["value"])
        self.best[label] = examples[:EXAMPLES]

    def cards(self) -> dict[str, Card]:
        """Return what was found, by head."""
        out: dict[str, Card] = {label: {"examples": x} for label, x in self.best.items()}
        for label, one in self._written().items():
            out.setdefault(label, {})["writes"] = one
        for label, near in self._alike().items():
            out.setdefault(label, {})["nearest"] = near
        return out

    def _alike(self) -> dict[str, list[Nearest]]:
        """Return the heads of the model with the most similar patterns."""
        labels = list(self.roots)
        if len(labels) < 2:
            return {}
        flat = np.stack([np.concatenate(self.roots[label]) for label in labels])
        similar = flat @ flat.T / self.rows
        np.fill_diagonal(similar, -np.inf)
        order = np.argsort(-similar, axis=1, kind="stable")[:, :ALIKE]
        return {
            label: [
                {
                    "model": self.found["id"],
                    "label": labels[j],
                    "similarity": round(min(float(similar[i, j]), 1.0), 3),
                    "how": _ALIKE,
                }
                for j in order[i]
                if similar[i, j] >= LEAST
            ]
            for i, label in enumerate(labels)
        }

    def _written(self) -> dict[str, Writes]:
        """Return the tokens that each head's mean output raises and lowers."""
        from interp.model.locate.weights import embeddings

        if not self.sums:
            return {}
        unembedding = embeddings(self.model).W_U.float().cpu()
        out: dict[str, Writes] = {}
        for label, total in self.sums.items():
            logits = (total / self.rows) @ unembedding
            raised = logits.topk(min(TOKENS, len(logits)))
            lowered = (-logits).topk(min(TOKENS, len(logits)))
            out[label] = {
                "up": self._named(raised.indices, raised.values),
                "down": self._named(lowered.indices, -lowered.values),
                "how": "mean output of the head on the prompts of the examples, through the "
                "unembedding; the final norm's gain is included, its scale is not",
            }
        for site in self.model.sites:
            self._circuits(site, unembedding, out)
        return out

    def _named(self, ids: Tensor, values: Tensor) -> list[tuple[str, float]]:
        tokens = separate_words(self.model, ids.tolist())
        return [(t, round(float(v), 4)) for t, v in zip(tokens, values.tolist(), strict=True)]

    def _circuits(self, site: Any, unembedding: Tensor, out: dict[str, Writes]) -> None:
        """Add examples of the OV and QK circuits of one layer on the tokens of the prompts."""
        import torch

        from interp.model.locate.layout import stream_read
        from interp.model.locate.weights import embeddings

        wanted = [x for x in self.heads(site.stack, site.layer) if x[1] in out]
        if not wanted:
            return
        weights, table = self.model.weights_of(site), embeddings(self.model)
        ids = torch.tensor(self.spoken)
        try:
            entering = table.W_E(stream_read(site, "v"))[ids].float().cpu()
            ov = weights.OV
        except UnreadableAttention as error:
            for _, label in wanted:
                how = out[label].get("how", "")
                out[label]["how"] = f"{how}. No examples of its circuits: {error}"
            return
        try:
            qk = weights.QK
        except UnreadableAttention:
            qk = None
        for head, label in wanted:
            read = entering @ ov.left[head].float().cpu()
            right = ov.right[head].float().cpu()
            size = (read @ right).norm(dim=1)
            strongest = size.topk(min(PAIRS, len(size))).indices
            logits = read[strongest] @ (right @ unembedding)
            most = logits.topk(min(KEYS, logits.shape[1]), dim=1).indices
            tokens = separate_words(self.model, ids[strongest].tolist())
            out[label]["ov"] = [
                (token, list(separate_words(self.model, row.tolist())))
                for token, row in zip(tokens, most, strict=True)
            ]
            if qk is None:
                continue
            scores = (entering @ qk.left[head].float().cpu()) @ (
                qk.right[head].float().cpu() @ entering.T
            )
            strongest = scores.std(dim=1).topk(min(PAIRS, len(scores))).indices
            most = scores[strongest].topk(min(KEYS, scores.shape[1]), dim=1).indices
            tokens = separate_words(self.model, ids[strongest].tolist())
            out[label]["qk"] = [
                (token, list(separate_words(self.model, ids[row].tolist())))
                for token, row in zip(tokens, most, strict=True)
            ]


def _metric(card: Card) -> str | None:
    """Return the first detector among the evidence of a head's role; None if there is none."""
    for one in card.get("evidence", []):
        name = base_name(one["metric"])
        if name in METRICS and METRICS[name].kind == "detector":
            return one["metric"]
    return None
