"""Compilation of the CPU's pass during a command: ahead of its use, or what is slow without it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from interp.core.prompt_file import read_prompt_file
from interp.core.prompts import Prompts
from interp.heads.engine import COMPILED_BYTES, all_pattern_bytes
from interp.model.model import Model
from interp_kernels.backends import why_not
from interp_kernels.cpu_ahead import compile_ahead

HEADS = 144  # of a small model; the number of the model is not known before it is loaded
BYTES = 4  # of a token of text
LONG = 2048  # tokens above which one random prompt is made, and not 16


def guessed_lengths(prompt_file: Path | None, context: int | None) -> list[int]:
    """Guess the tokens of each prompt of a command before there is a tokenizer."""
    if context is not None:
        return [context] * (1 if prompt_file or context > LONG else 16)
    if prompt_file is None:
        return []
    return [len(str(prompt)) // BYTES for prompt in read_prompt_file(prompt_file)]


def compile_while_loading(lengths: Sequence[int]) -> None:
    """Start to compile in another process if prompts of these lengths will need the pass."""
    if 4 * HEADS * sum(n**2 for n in lengths) > COMPILED_BYTES:
        compile_ahead()


def why_slow(model: Model, prompts: Prompts) -> str | None:
    """Return a note if the pass would pay for these prompts and cannot run here."""
    if all_pattern_bytes(model, map(len, prompts.ids)) <= COMPILED_BYTES:
        return None
    lacking = why_not("cpu") if model.device.type == "cpu" else None
    return lacking and f"PyTorch operations read long prompts, which is slower: {lacking}"
