"""Protocols of the model attributes that core uses, so that it imports no model class."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

Progress = Callable[[str, int, int], None]
"""Function that is called with the name of a step, the steps done and their total number."""


def silent(what: str, done: int, total: int) -> None:
    """Report no progress."""


class Reporter(Protocol):
    """Notes, errors and progress of a long run."""

    debug: bool

    def note(self, text: str) -> None:
        """Report what is not an error."""
        ...

    def error(self, text: str, error: BaseException | None = None) -> None:
        """Report an error in one line."""
        ...

    def bars(self, model: str) -> AbstractContextManager[Progress]:
        """Report the progress of a model inside the block."""
        ...


class TokenModel(Protocol):
    """Model attributes that prompts need: vocabulary, optional tokenizer and length limits."""

    @property
    def name(self) -> str:
        """Name of the model, for messages."""
        ...

    @property
    def tokenizer(self) -> Any:
        """The tokenizer; None where the model has none."""
        ...

    @property
    def config(self) -> Any:
        """The Hugging Face config, for the special tokens."""
        ...

    @property
    def d_vocab(self) -> int:
        """Number of token ids."""
        ...

    @property
    def limit(self) -> Any:  # an int or None; type checkers refuse a cached property for that
        """Longest prompt of the position table; None where positions are computed."""
        ...

    @property
    def context(self) -> int | None:
        """The context length that the config states."""
        ...


class PictureModel(TokenModel, Protocol):
    """Model attributes that segments of prompts need: besides tokens, towers and the device."""

    @property
    def joint_sites(self) -> Any:
        """Attentions that run on images inside text; empty where the model reads none."""
        ...

    @property
    def device(self) -> Any:
        """Device of the model."""
        ...


class IdentifiedModel(Protocol):
    """Model attributes that provenance needs: origin, hash of the weights, and way of running."""

    @property
    def name(self) -> str:
        """Name of the model."""
        ...

    @property
    def revision(self) -> str | None:
        """Revision of the checkpoint, where it has one."""
        ...

    @property
    def content_hash(self) -> str:
        """sha256 of the parameters and buffers."""
        ...

    @property
    def dtype(self) -> Any:
        """Data type of the parameters."""
        ...

    @property
    def attention(self) -> str:
        """Attention implementation."""
        ...

    @property
    def source(self) -> str:
        """Package that holds the model."""
        ...

    @property
    def unused(self) -> tuple[str, ...]:
        """Tensors of the checkpoint that the model does not use."""
        ...
