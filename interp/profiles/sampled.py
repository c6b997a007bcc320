"""Sample of text on which a model is described, if need be of texts that the model writes itself.

A model is described on the text that its user gives, and else on the texts that come with the
package, unless these do not suit it. They do not where its loss there is above that of a table of
token frequencies, or more than 2 nats and 1.5 times above that on texts that it writes, or where
its tokenizer cannot spell them. Then it writes texts, each from its first token to its end.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp import bundled
from interp.core.documents import parse_json
from interp.core.errors import OptionError, PromptError
from interp.core.protocols import silent
from interp.core.random_state import drawn_with
from interp.core.tokens import encoded_text
from interp.model.hooks.inference import inference
from interp.model.inputs import generates
from interp.profiles.corpus import (
    FEWEST,
    SHORTEST,
    DocumentCorpus,
    Sample,
    copy_clusters,
    sample_corpus,
    window_limit,
)
from interp.profiles.predictions import Prediction, prediction_of
from interp.profiles.sources import BUNDLED, SAMPLED
from interp.profiles.text_loss import N_WINDOWS, loss_facts, mean_loss

if TYPE_CHECKING:
    from interp.core.protocols import Progress
    from interp.model.model import Model

N_TEXTS = 64  # written, at most, where nobody asked for them: as many as the bundled texts
CHECKED = 64  # tokens of a text by which written and bundled texts are compared
FAR, TIMES = 2.0, 1.5  # nats and ratio above the loss on written texts: the bundled do not suit
_ROWS = 32  # texts written at once, always as many, so that their number changes none of them


def text_sample(
    model: Model,
    sites: Any,
    source: Any,
    field: str,
    resume: Any,
    progress: Any,
    most: int = N_TEXTS,
    **options: Any,
) -> Sample:
    """Return a sample of a corpus, of the bundled texts, or of texts that the model writes.

    A model that was not asked to writes `most` texts at most; one that comes with texts reads
    these. The facts hold the loss per token and, of written texts, why and how they were written.
    """
    named = str(getattr(model.config, "name_or_path", ""))
    own = bundled.own_texts(named) if source is None else None
    source = own or source
    prediction, why, texts = prediction_of(model, sites, options["seed"]), "", []
    if source is None or (isinstance(source, str) and source == SAMPLED):
        choice = _Choice(model, prediction, source is not None, options, progress, most)
        why, texts = choice.kept(resume)
        source = texts or BUNDLED
    corpus = source if isinstance(source, DocumentCorpus) else DocumentCorpus(source, field=field)
    sample = sample_corpus(corpus, model, **options)
    text, facts = loss_facts(model, prediction, sample), dict(sample.facts)
    text["bundled"] = isinstance(source, str) and source == BUNDLED
    text["own"] = own is not None
    text["foreign"] = "" if texts else why or text["foreign"]
    if texts:
        facts["corpus"] = "texts sampled from the model"
        text["sampled"] = {"why": why, "temperature": 1.0, "seed": options["seed"]}
    written = tuple(np.array(ids, np.int32) for ids in texts)
    return replace(sample, facts=facts | {"text": text}, written=written)


@dataclass(frozen=True)
class _Choice:
    """Choice of the text for a model whose user gives none: bundled, or written by the model."""

    model: Model
    prediction: Prediction | str
    asked: bool  # for texts that the model writes
    options: Mapping[str, Any]
    progress: Progress | None
    most: int = N_TEXTS  # texts, if nobody asked for them

    def kept(self, resume: Any) -> tuple[str, list[list[int]]]:
        """Return what `chosen` returns, or what another process or an earlier run kept of it."""
        if resume is None:
            return self.chosen()
        from interp.core.store import Store
        from interp.model.identity import identity_of

        settings = {"model": identity_of(self.model), "asked": self.asked, **self.options}
        steps = Store(resume).steps("profiled text", self.model.content_hash, settings)
        if not steps.find(["chosen"]):  # what another process adds before this one stays
            steps.add({"chosen": json.dumps(self.chosen()).encode()})
        return parse_json(steps.find(["chosen"])["chosen"])

    def chosen(self) -> tuple[str, list[list[int]]]:
        """Return why the bundled texts do not suit the model, and the texts that it wrote."""
        model, n, cannot = self.model, self.options["n_documents"], ""
        if isinstance(self.prediction, str):
            cannot = self.prediction
        elif model.kind != "causal" or model.tokenizer is None or not generates(model.module):
            cannot = f"{model.name} does not generate text, or has no tokenizer"
        if self.asked and cannot:
            raise OptionError(f"{cannot}, so it cannot write its corpus; give one as --corpus")
        why = "" if self.asked else self.why_foreign(bool(cannot))
        if cannot or not (self.asked or why):
            return why, []
        n = n if self.asked else min(n, self.most)
        texts = write_texts(model, n, self.options, self.progress)
        distinct = {*copy_clusters([ids for ids in texts if len(ids) >= SHORTEST])}
        if not self.asked and len(distinct) < FEWEST:
            return f"{why}, and the texts that it writes are too short or too alike", []
        return why, texts

    def why_foreign(self, silent: bool) -> str:
        """Return why the bundled texts do not suit the model; empty if they do."""
        try:
            bundled = sample_corpus(DocumentCorpus(), self.model, **self.options)
        except PromptError as error:  # its tokenizer cannot spell them
            return str(error).partition(";")[0]
        why = loss_facts(self.model, self.prediction, bundled)["foreign"]
        if why or silent or isinstance(self.prediction, str):
            return why
        cut = [replace(window, ids=window.ids[:CHECKED]) for window in bundled.windows[:N_WINDOWS]]
        options = {**self.options, "max_length": min(CHECKED, self.options["max_length"])}
        texts = zip(cut, write_texts(self.model, len(cut), options), strict=True)
        written = [replace(window, ids=tuple(ids)) for window, ids in texts if len(ids) > 1]
        there = mean_loss(self.model, self.prediction, cut)[0]
        here = mean_loss(self.model, self.prediction, written)[0] if written else there
        if there <= max(here + FAR, TIMES * here):
            return ""
        where = f"on their first {CHECKED} tokens, and {here:.2f} on those of texts that it writes"
        return f"{there:.2f} nats per token {where}"


@torch.no_grad()
def write_texts(
    model: Model, n: int, options: Mapping[str, Any], progress: Progress | None = None
) -> list[list[int]]:
    """Return texts that a model writes at temperature 1, as token ids, without its end token.

    The first ones do not depend on the number. Tokens are drawn from the model's own distribution,
    whatever its settings of generation (top p, penalties) are.
    """
    texts, (first, stays) = [], _first_token(model)
    ids, length = torch.full((_ROWS, 1), first, device=model.device), options["max_length"]
    module: Any = model.module
    settings = dict.fromkeys(module.generation_config.to_diff_dict())  # none of its own, no end
    settings |= {"do_sample": True, "top_k": 0, "use_cache": True, "pad_token_id": 0}
    settings |= {"num_beams": 1, "num_return_sequences": 1}
    settings["max_new_tokens"] = window_limit(model, length) - stays
    ends = {*_named(model, "bos", "eos", "pad")}
    for at in range(0, n, _ROWS):
        with drawn_with(options["seed"] + at, model.device), inference(module):
            rows = module.generate(ids, attention_mask=torch.ones_like(ids), **settings)
        for row in rows[:, 1:].tolist():
            end = next((place for place, token in enumerate(row) if token in ends), len(row))
            texts.append([first] * stays + row[:end])
        (progress or silent)("texts sampled", min(at + _ROWS, n), n)
    return texts[:n]


def _first_token(model: Model) -> tuple[int, bool]:
    """Return the token from which a model writes, and whether its texts begin with it.

    It is the one that the tokenizer puts before a text, or else BOS or EOS, which is not part of
    the text; of a tokenizer without them the most frequent token of the bundled texts.
    """
    text = "\n".join(document.text for document in DocumentCorpus())
    ids = encoded_text(model.tokenizer, text, verbose=False)["input_ids"]
    if ids[0] in model.tokenizer.all_special_ids:
        return ids[0], True
    if named := _named(model, "bos", "eos"):
        return named[0], False
    return Counter(ids).most_common(1)[0][0], True


def _named(model: Model, *kinds: str) -> list[int]:
    """Return the special tokens of these kinds that the tokenizer of a model has."""
    tokens = (getattr(model.tokenizer, f"{kind}_token_id", None) for kind in kinds)
    return [token for token in tokens if token is not None]
