"""Sentences on the text on which heads are described: loss of the model, and where it is from."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

BETTER = "Real texts of the kind that the model was trained on are always better: --corpus FILE."


def text_sentences(about: Mapping[str, Any], *, full: bool = True) -> list[str]:
    """Return the loss on the text of a profile, its origin, and a warning if it is foreign.

    The short form leaves out of how much text that is known, and how it was written.
    """
    text = about.get("text")
    if not text:  # of another version, or another package
        return []
    said = [f"Loss not measured: {text.get('why_no_loss')}."]
    if "loss" in text:
        error = f" (standard error over {text['loss_documents']} documents, "
        error += f"{text['loss_tokens']:,} tokens)"
        loss = f"{text['loss']:.2f} ± {text['loss_sem']:.2f} nats per {text['predicted']}"
        said = [f"Loss {loss}{error if full else ''}."]
    if written := text.get("sampled"):
        why = f", because the bundled texts do not suit it ({written['why']})"
        how = f"temperature {written['temperature']:g}, seed {written['seed']}"
        why = f" ({how}){why if written['why'] else ''}" if full else ""
        said.append(f"The model wrote these texts itself{why}.")
    if text["foreign"]:
        warning = f"Warning: this text is foreign to the model ({text['foreign']}), and what heads"
        whole = f"{warning} do on it need not be what they do on text of its kind."
        said.append(whole if full else "Warning: this text is foreign to the model.")
    if text["bundled"]:
        said.append("These short texts come with the package.")
    better = [BETTER] * (len(said) > 1)
    own = ["These texts come with the model, which was not trained on them."]
    return said + (own if text.get("own") else better)


def text_lines(about: Mapping[str, Any], *, full: bool = True) -> list[str]:
    """Return these sentences as indented lines."""
    said = " ".join(text_sentences(about, full=full))
    return textwrap.wrap(said, 100, initial_indent="  ", subsequent_indent="  ")
