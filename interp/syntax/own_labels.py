"""Scores of all labels of a file of labelled texts, in one forward pass per batch."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from interp.core.errors import OptionError
from interp.core.protocols import Progress, silent
from interp.core.registry import METRICS
from interp.core.table import HeadTable
from interp.heads.declaration import BoundAnalysis
from interp.heads.score_rows import MetricScores, Rows, rows_of, table_of_rows
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model
from interp.syntax.categories._files import read_labelled_texts
from interp.syntax.categories._measuring import (
    BATCH,
    DRAWS,
    NULL,
    measured_categories,
    of_keys,
    of_links,
)
from interp.syntax.categories._sources import require_label
from interp.syntax.categories._texts import LabelledText, key_codes, linked_codes, tokenized

if TYPE_CHECKING:
    from interp.model.model import Model

LEAST = 2  # groups and spans of a group, in some text, for links to be scored


@takes_model
def category_scores(
    model: Model,
    texts: str | Path | Sequence[LabelledText],
    labels: Iterable[str] | None = None,
    *,
    max_length: int = 96,
    n_random: int = DRAWS,
    seed: int = 0,
    batch_size: int = BATCH,
    engine: str = "auto",
    progress: Progress | None = None,
) -> HeadTable:
    """Score every head on every label of labelled texts, and on the links of labels with groups.

    `labelled:label=X` is the attention on tokens of X above their share of the visible words;
    `coreference:label=X` that of a token of X on other spans of its group, above their share of all
    spans of X. Each text is a prompt. Labels without a token in the first `max_length` tokens are
    left out; provenance names them, and the number of texts that are cut.

    Null: the labels of other texts at the same positions; p is of the difference over documents.

    Not for: showing that a head reads a category: a random head too prefers some words. Compare
    with `interp score -m labelled`, which also draws random weights.

    Cost: One forward pass per text, and the kernels five times per label.

    Unit: attention above share.

    Reference: this project.

    Args:
        model: a loaded model, or anything that `interp.load` accepts.
        texts: a file or folder, see `read_labelled_texts`, or the texts.
        labels: labels to score; all of the texts by default.
        max_length: tokens of each text, at most.
        n_random: labellings of the null; at least 1.
        seed: seed of the labellings.
        batch_size: texts per forward pass; does not affect the numbers.
        engine: "stored", "streamed" or "auto"; see `interp.score`.
        progress: see `Progress`.

    Raises:
        PromptError: the file is wrong, there are fewer than two documents, the model has no
            tokenizer or no vocabulary of text, or no label has a token.
        OptionError: a label does not occur in the texts, or `n_random` is below 1.
    """
    if n_random < 1:
        raise OptionError(f"n_random={n_random}: give at least one labelling of the null")
    file = str(texts) if isinstance(texts, (str, Path)) else ""
    labelled = read_labelled_texts(texts) if isinstance(texts, (str, Path)) else list(texts)
    known = Counter(s.label for t in labelled for s in t.spans)
    asked = list(known) if labels is None else list(dict.fromkeys(labels))
    for label in asked:
        require_label(labelled, label, file or "the texts")
    at = tokenized(model, labelled, max_length)
    categories, bounds, left_out = [], [], []
    for label in asked:
        keys = of_keys(label, key_codes(at, label), at.words())
        if keys.size == 0:
            left_out.append(label)
            continue
        categories.append(keys)
        bounds.append(METRICS.load("labelled").bind(label=label))
        if _linked(at.texts, label):
            categories.append(of_links(label, linked_codes(at, label)))
            bounds.append(METRICS.load("coreference").bind(label=label))
    name = f"{model.name}, {len(asked)} labels"
    progress = progress or silent
    measured = measured_categories(
        model,
        at,
        categories,
        seed=seed,
        draws=n_random,
        engine=engine,
        batch_size=batch_size,
        advance=lambda done, total: progress(name, done, total),
    )
    content = hashlib.sha256(repr(labelled).encode()).hexdigest()
    about = {"prompts": f"{len(labelled)} labelled texts", "prompts_hash": content, "seed": seed}
    about |= {"engine": engine, "left_out": left_out, "length": max_length, "file": file}
    about |= {"made_by": "interp.syntax.category_scores", "cut": at.n_cut}
    clusters = tuple(t.document or f"text {i}" for i, t in enumerate(at.texts))
    origin, rows = model_provenance(model), []
    for bound, category, each in zip(bounds, categories, measured, strict=True):
        values, null = ({s: x.numpy() for s, x in v.items()} for v in (each.values, each.null))
        note = f"{category.size} tokens, {each.share:.4f} of the eligible tokens that a query sees"
        figures = about | {"notes": [note], "options": dict(bound.options) | {"file": file}}
        scores = MetricScores(values, clusters, NULL, null)
        rows.append(_named(rows_of(model, bound, scores, origin, figures), bound))
    return table_of_rows(rows)


def _named(rows: Rows, bound: BoundAnalysis) -> Rows:
    """Return the rows with the label in the metric's name, also where it is the default."""
    name = f"{bound.analysis.name}:label={bound.options['label']}"
    records = [row | {"metric": name} for row in rows.records]
    provenance = {(model, name): x for (model, _), x in rows.provenance.items()}
    return Rows(records, provenance, {(model, name): x for (model, _), x in rows.values.items()})


def _linked(texts: Sequence[LabelledText], label: str) -> bool:
    """Return True if a text has two groups of the label, one with two spans."""
    for text in texts:
        groups = Counter(s.group for s in text.spans if s.label == label and s.group)
        if len(groups) >= LEAST and max(groups.values()) >= LEAST:
            return True
    return False
