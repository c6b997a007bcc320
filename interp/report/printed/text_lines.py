"""Sentences on the text on which heads are described: loss of the model, and where it is from."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

BETTER = "Real texts of the kind that the model was trained on are always better: --corpus FILE."


def text_sentences(about: Mapping[str, Any]) -> list[str]:
    """Return the loss on the text of a profile, its origin, and a warning if it is foreign."""
    text = about.get("text")
    if not text:  # of another version, or another package
        return []
    said = [f"Loss not measured: {text.get('why_no_loss')}."]
    if "loss" in text:
        error = f"standard error over {text['loss_documents']} documents"
        loss = f"{text['loss']:.2f} ± {text['loss_sem']:.2f} nats per {text['predicted']}"
        said = [f"Loss {loss} ({error}, {text['loss_tokens']:,} tokens)."]
    if written := text.get("sampled"):
        why = f", because the bundled texts do not suit it ({written['why']})"
        how = f"temperature {written['temperature']:g}, seed {written['seed']}"
        said.append(f"The model wrote these texts itself ({how}){why if written['why'] else ''}.")
    if text["foreign"]:
        warning = f"Warning: this text is foreign to the model ({text['foreign']}), and what heads"
        said.append(f"{warning} do on it need not be what they do on text of its kind.")
    if text["bundled"]:
        said.append("These short texts come with the package.")
    return said + [BETTER] * (len(said) > 1)


def text_lines(about: Mapping[str, Any]) -> list[str]:
    """Return these sentences as indented lines."""
    said = " ".join(text_sentences(about))
    return textwrap.wrap(said, 100, initial_indent="  ", subsequent_indent="  ")
