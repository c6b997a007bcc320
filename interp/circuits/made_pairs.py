"""Pairs of prompts made from templates, or from a model's own completions, and filtered.

pairs = make_pairs(model, "gave.toml", n=64, keep="preferred")
pairs.save("gave.jsonl")                    # for every command that takes a task file
find_circuit(model, pairs.task(model))
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from interp.causal.measures import logit_difference
from interp.circuits.contrast import ContrastTask
from interp.circuits.steps import Progress
from interp.circuits.tasks import filtered_pairs
from interp.circuits.tasks.template_file import read_templates
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.intervals import share_interval
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.result import Result
from interp.core.tokens import token_id
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from interp.model.model import Model

LEAST = 6


@dataclass(frozen=True, eq=False, repr=False)
class MadePairs(Result):
    """Pairs of prompts with their answers, and how a model does on them.

    Args:
        model: Name of the model.
        name: Name of the task: the file's name without suffix.
        templates: By pair, the label of its template.
        prompts, corrupted: By pair, both sides: texts, or token ids.
        answers, wrong: By pair, the answers: texts, or token ids.
        ids: By pair, the tokens of both sides.
        roles: By pair, positions by role.
        clean, contrast: By pair, the logit of the answer minus that of the wrong one after the
            clean and after the corrupted prompt; the score is their difference.
        probability: By pair, the probability of the answer after the clean prompt.
        measured, preferred: Number of candidates that the model was run on, and of those where it
            prefers the answer, before the filters of `keep`.
        dropped: Number of candidates that were left out, by reason.
        made: Provenance.
    """

    model: str
    name: str
    templates: tuple[str, ...]
    prompts: tuple[Any, ...]
    corrupted: tuple[Any, ...]
    answers: tuple[Any, ...]
    wrong: tuple[Any, ...]
    ids: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = field(repr=False)
    roles: tuple[Mapping[str, int], ...] = field(repr=False)
    clean: Float[np.ndarray, " pair"] = field(repr=False)
    contrast: Float[np.ndarray, " pair"] = field(repr=False)
    probability: Float[np.ndarray, " pair"] = field(repr=False)
    measured: int
    preferred: int
    dropped: Mapping[str, int]
    made: Mapping[str, Any] = field(default_factory=dict, repr=False)
    per_prompt = None
    why_no_per_prompt = "every row is one pair of prompts, so there are no values per prompt"
    _units = ("pair",)
    _same_as = MappingProxyType({})
    _per_row = (
        "templates",
        "prompts",
        "corrupted",
        "answers",
        "wrong",
        "ids",
        "roles",
        "clean",
        "contrast",
        "probability",
    )

    @property
    def provenance(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The model, the file, the filters and the candidates that they left out."""
        return self.made

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def preferred_share(self) -> tuple[float, float, float]:
        """Share of the measured candidates where the model prefers the answer, and its interval.

        The 95 % interval counts candidates as independent, which those of few templates are not.
        """
        low, high = share_interval(self.preferred, self.measured)
        return self.preferred / max(1, self.measured), low, high

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": "logit_difference", "unit": "logits", "n": 1}

    def _rows(self) -> pd.DataFrame:
        """Return a row per pair: prompts, answers, and the model's logit differences."""
        import pandas as pd

        return pd.DataFrame(
            {
                "pair": range(len(self)),
                "template": self.templates,
                "prompt": self.prompts,
                "corrupted": self.corrupted,
                "answer": self.answers,
                "wrong": self.wrong,
                "score": self.clean - self.contrast,
                "clean": self.clean,
                "contrast": self.contrast,
                "probability": self.probability,
            }
        )

    def task(self, model: Model) -> ContrastTask:
        """Return the pairs as a contrast task, measured by the logit difference of their answers.

        Raises:
            PromptError: The model splits the texts into other tokens than the model that the pairs
                were made with.
        """
        from interp.model.model_argument import one_model

        model = one_model(model)
        texts = [t for t in (*self.prompts, *self.corrupted) if isinstance(t, str)]
        ids = [i for side in (0, 1) for i in (pair[side] for pair in self.ids)]
        if texts and Prompts.of(texts, model).ids != tuple(ids):
            raise PromptError(
                f"{model.name} splits these prompts into other tokens than {self.model}, for which"
                " the pairs were made; make them again with this model"
            )
        task = logit_difference(
            model,
            Prompts(tuple(pair[0] for pair in self.ids), f"pairs of {self.name}"),
            [token_id(model, t) for t in self.answers],
            [token_id(model, t) for t in self.wrong],
            corrupted=Prompts(tuple(pair[1] for pair in self.ids), "corrupted"),
            name=self.name,
        )
        return ContrastTask(task, self.roles, self.templates)

    def _jsonl(self) -> str:
        """Return the lines of a task file, without what was measured."""
        several = len(set(self.templates)) > 1
        lines = []
        for i in range(len(self)):
            row = {
                "prompt": self.prompts[i],
                "corrupted": self.corrupted[i],
                "answer": self.answers[i],
                "wrong": self.wrong[i],
            }
            row |= {"cluster": self.templates[i]} if several else {}
            row |= {"roles": dict(self.roles[i])} if self.roles[i] else {}
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
        return "".join(lines)

    def plot(self) -> go.Figure:  # type: ignore[override]  # every row is drawn
        """Draw every pair: logit difference after the corrupted and after the clean prompt."""
        import plotly.graph_objects as go

        words = [
            f"{p} →{a} / {w}"
            for p, a, w in zip(self.prompts, self.answers, self.wrong, strict=True)
        ]
        figure = go.Figure(
            go.Scatter(
                x=self.contrast,
                y=self.clean,
                mode="markers",
                text=[_escaped(w) for w in words],
                hovertemplate="%{text}<br>clean %{y:.2f}, corrupted %{x:.2f}<extra></extra>",
            )
        )
        figure.update_layout(
            template="plotly_white",
            title=f"{len(self)} pairs of {self.name}: {self.model} (answer minus wrong, logits)",
            xaxis_title="after the corrupted prompt",
            yaxis_title="after the clean prompt",
        )
        return figure

    def __repr__(self) -> str:
        share, low, high = self.preferred_share
        return (
            f"MadePairs({self.name}: {len(self)} pairs; {self.model} prefers the answer in"
            f" {self.preferred} of {self.measured} candidates, {share:.0%} [{low:.0%}, {high:.0%}])"
        )


def _escaped(text: str) -> str:
    from html import escape

    return escape(text)


@takes_model
def make_pairs(
    model: Model,
    source: str | os.PathLike,
    *,
    n: int = 64,
    seed: int = 0,
    only: Literal["all", "preferred", "first"] = "all",
    least_probability: float = 0.0,
    progress: Progress | None = None,
) -> MadePairs:
    """Make pairs of prompts of equal length from a file, and keep those that pass the filters.

    Args:
        model: The model, whose tokenizer decides which pairs fit.
        source: A template file (.toml, see `interp.circuits.tasks.template_file`), or a .jsonl file
            with the fields prompt and corrupted. Where answers are missing, the model's own most
            likely tokens after the clean and after the corrupted prompt become answer and wrong
            answer; where they are the same token, the pair is left out.
        n: Number of pairs.
        seed: Seed of the words and templates that are drawn.
        only: "all", "preferred" (pairs where the model prefers the answer to the wrong one) or
            "first" (pairs where the answer is also its most likely token).
        least_probability: Least probability of the answer after the clean prompt.
        progress: Function that receives the progress.

    Raises:
        UnknownName: `only` is not known.
        OptionError: n or the probability is out of range, or the file is of another kind.
        PromptError: The file cannot be read, the model has no tokenizer, or fewer than 6 pairs
            pass; the message says how many candidates were left out for which reason.

    Cost: two forward passes per candidate.

    Not for: rates. Pairs that are selected by the model's success say what happens where it
    succeeds; `preferred_share` is measured before that selection.
    """
    path = Path(source)
    if only not in filtered_pairs.KEEP:
        raise UnknownName("filter of pairs", only, filtered_pairs.KEEP)
    if n < LEAST or not 0 <= least_probability < 1:
        raise OptionError(
            f"n={n}, least_probability={least_probability}; give {LEAST} pairs or more, and a"
            " probability from 0 to below 1"
        )
    if path.suffix not in (".toml", ".jsonl"):
        raise OptionError(
            f"{path} is neither a template file (.toml) nor a file of prompts (.jsonl); give one"
        )
    if path.suffix == ".toml":
        file = read_templates(path)
        if model.tokenizer is None:
            raise PromptError(f"{model.name} has no tokenizer, but templates are text")
        candidates = filtered_pairs.from_templates(model, file, n, seed)
    else:
        candidates = filtered_pairs.from_rows(model, path)
    tell = None if progress is None else lambda k: progress("making pairs", k, n)
    kept = filtered_pairs.filtered(model, candidates, n, only, least_probability, tell)
    if len(kept.pairs) < LEAST:
        why = "; ".join(f"{count}: {reason}" for reason, count in kept.dropped.most_common())
        raise PromptError(
            f"{path}: only {len(kept.pairs)} pairs fit {model.name}, {LEAST} or more are needed"
            + (f" (left out: {why})" if why else "")
            + "; add words or prompts, or filter less"
        )
    pairs = kept.pairs
    provenance = model_provenance(model) | {
        "made_by": "interp.circuits.make_pairs",
        "file_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "n_asked": n,
        "seed": seed,
        "keep": only,
        "least_probability": least_probability,
        "dropped": dict(kept.dropped),
    }
    return MadePairs(
        model.name,
        path.stem,
        tuple(p.template for p in pairs),
        tuple(p.prompt for p in pairs),
        tuple(p.corrupted for p in pairs),
        tuple(p.answer for p in pairs),
        tuple(p.wrong for p in pairs),
        tuple(p.ids for p in pairs),
        tuple(p.roles for p in pairs),
        np.array([p.clean for p in pairs]),
        np.array([p.contrast for p in pairs]),
        np.array([p.probability for p in pairs]),
        kept.measured,
        kept.preferred,
        dict(kept.dropped),
        provenance,
    )


present(MadePairs, text="interp.report.printed.circuits:pairs_text")
