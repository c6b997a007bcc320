"""Small models with a built-in, known mechanism, as ground truth for tests of methods.

Every planted model is an ordinary `transformers.LlamaForCausalLM` in evaluation mode: it loads,
saves and runs like any other, with grouped-query heads and rotary positions. (Selective induction
needs learned positions: it is a `GPT2LMHeadModel`; `image_text` and `image_readers` read pictures:
they are `LlavaForConditionalGeneration`s; `spoken_words` hears words: it is a
`WhisperForConditionalGeneration`.) Each planted head has a stated role, so that the results of a
method can be verified.

Two more kinds of models with a known mechanism are compiled from programs (`programs`) and trained
to hold an algorithm (`trained`). Names and summaries of all are read without importing torch.
"""

from __future__ import annotations

import copy
from importlib import import_module
from typing import TYPE_CHECKING, Any

from interp.core.errors import UnknownName

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from interp.planted.assemble import Planted
    from interp.planted.builders import (
        backup,
        bystander,
        copy_suppression,
        duplicate_token,
        induction,
        noise,
        positional,
        retriever,
        sink,
        zoo,
    )
    from interp.planted.declining import refusal
    from interp.planted.neuron_heads import attention_only
    from interp.planted.programs import PROGRAMS, joined
    from interp.planted.reading_images import image_readers
    from interp.planted.selective import selective_induction
    from interp.planted.trained import TRAINED, trained_card, trained_model
    from interp.planted.with_picture import image_text
    from interp.planted.with_sound import spoken_words

PLANTED: dict[str, str] = {
    "induction": "a previous-token head feeding an induction head that copies",
    "duplicate_token": "a head that attends to earlier copies of the current token",
    "copy_suppression": "a head that lowers the logit of a predicted token seen before",
    "bystander": "induction, and a head with the same attention whose output is never read",
    "backup": "induction, and a head that copies only when the induction head is ablated",
    "sink": "induction, and a head that attends to the first token and writes nothing",
    "positional": "heads that attend at a fixed offset, whatever the tokens",
    "noise": "random heads only, which every detector must score near chance",
    "refusal": "a head that finds a marker token and overrides the prediction by a refusal",
    "selective_induction": "induction that infers the lag of interleaved Markov chains and copies "
    "from it",
    "retriever": "induction and a head that counts, for retrieval tasks of up to 32k tokens",
    "zoo": "every planted mechanism but the three above in one model, among random heads",
}

KINDS = ("planted", "compiled", "trained")  # kinds of models whose mechanism is known

__all__ = [
    "KINDS",
    "PLANTED",
    "PROGRAMS",
    "TRAINED",
    "Planted",
    "attention_only",
    "backup",
    "build",
    "bystander",
    "check_known",
    "copy_suppression",
    "duplicate_token",
    "image_readers",
    "image_text",
    "induction",
    "joined",
    "known_models",
    "module_of",
    "noise",
    "positional",
    "refusal",
    "retriever",
    "selective_induction",
    "sink",
    "spoken_words",
    "trained_card",
    "trained_model",
    "zoo",
]


def build(name: str, **sizes: Any) -> Planted:
    """Build the planted model called `name`; `sizes` are the builder's keyword arguments.

    Raises `UnknownName` for a name that is not in `PLANTED`, `OptionError` for sizes that do not
    fit the mechanism.
    """
    if name not in PLANTED:
        raise UnknownName("planted model", name, PLANTED)
    return _builder(name)(**sizes)


_ELSEWHERE = {  # modules of further names
    "attention_only": "neuron_heads",
    "PROGRAMS": "programs",
    "TRAINED": "trained",
    "image_readers": "reading_images",
    "image_text": "with_picture",
    "joined": "programs",
    "spoken_words": "with_sound",
    "trained_card": "trained",
    "trained_model": "trained",
    "Planted": "assemble",
}


def known_models(kind: str) -> dict[str, str]:
    """Return the names of the models of a kind, with a summary of each."""
    if kind == "compiled":
        from interp.planted.programs import JOINS, PROGRAMS

        joins = {name: f"{name.replace('+', ', ')} side by side" for name in JOINS}
        return {name: each.summary for name, each in PROGRAMS.items()} | joins
    if kind == "trained":
        from interp.planted.trained import TRAINED

        return TRAINED
    return PLANTED


def check_known(kind: str, name: str) -> None:
    """Check the name of a model of one of `KINDS`."""
    if kind == "compiled" and "+" in name:
        from interp.planted.programs import names_in

        names_in(name)
    elif name not in known_models(kind):
        raise UnknownName(f"{kind} model", name, known_models(kind))


def module_of(kind: str, name: str) -> PreTrainedModel:
    """Build a model of one of `KINDS`; raises what `check_known` raises."""
    check_known(kind, name)
    if kind == "compiled":
        from interp.planted.programs import joined

        return copy.deepcopy(joined(name).module)
    if kind == "trained":
        from interp.planted.trained import trained_model

        return trained_model(name)
    return build(name).model


def _builder(name: str) -> Any:
    home = {"selective_induction": "selective", "refusal": "declining"}.get(name, "builders")
    return getattr(import_module(f"interp.planted.{home}"), name)


def __getattr__(name: str) -> Any:
    # Builders are imported on first use, so that listing the names does not import torch.
    if name in PLANTED:
        return _builder(name)
    if name in _ELSEWHERE:
        return getattr(import_module(f"interp.planted.{_ELSEWHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
