"""The prompt that was typed last, with everything that is known of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from interp.core.errors import InterpError, OptionError, PromptError
from interp.core.prompts import Prompts, bos_id, repeats
from interp.heads.patterns.result import View
from interp.model.inputs import ran_out
from interp.report.explore.queries_keys import KeptPrompt
from interp.report.explore.requests import require_text

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.model.model import Model
    from interp.profiles.on_prompt import PromptRules


_CHARACTERS = 64  # of a prompt, per position that a model has
EXAMPLES = (
    "The cat sat on the mat. The cat sat on the",
    "with Anna a red bird falls so",  # in the vocabularies of bundled models, this one `deceive`
    "bring the red lamp from the private garden to Anna then",
    "turn lamp stone river apple",
)
"""Prompts with which a page begins; the first whose words a model knows is taken."""


@dataclass(frozen=True, eq=False)
class AskedPrompt:
    """A prompt that a session ran.

    Args:
        number: Its number, which later calls name.
        prompts: The prompt.
        inputs: What the model reads.
        tokens: Tokens of the positions that have logits.
        shown: Its patterns; queries and keys, where it is long.
        clean: Logits of the plain run, by position.
        ablated: Patterns of the latest ablation, by its number.
        rules: The rules on it, once they are asked for.
        written: Where its continuation begins, and its tokens, once they are asked for.
    """

    number: int
    prompts: Prompts
    inputs: Mapping[str, Any]
    tokens: tuple[str, ...]
    shown: View | KeptPrompt
    clean: dict[int, Float[Tensor, "d_vocab"]]
    ablated: dict[int, View]
    rules: list[PromptRules]
    written: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)

    @property
    def n(self) -> int:
        """The positions that have logits."""
        return len(self.tokens)

    def patterns(self, after: int | None = None) -> View:
        """Return the patterns of a short prompt, or those under an ablation."""
        if not isinstance(self.shown, View):
            raise OptionError(
                f"the prompt has {self.n:,} tokens, more than those whose patterns are stored; ask "
                "for tiles, or shorten it to have rows explained"
            )
        of = self.shown if after is None else self.ablated.get(after)
        if of is None:
            raise OptionError(f"ablation {after} was replaced by another one; ask for that")
        return of

    def notes(self, model: Model) -> list[str]:
        """Return what a reader of the patterns must know."""
        notes = list(self.shown.notes) if isinstance(self.shown, View) else []
        n, stated = len(self.prompts.ids[0]), model.context
        if stated is not None and n > stated:
            notes.append(
                f"The prompt has {n:,} tokens; the model was made for {stated:,}. Beyond them, "
                "attention is not what training made it."
            )
        if isinstance(self.shown, KeptPrompt):
            block = self.shown.block
            notes.append(
                f"A point of the small maps is the exact share of attention between {block} "
                f"queries and {block} keys, as a mean over the queries; a point of an opened map "
                "is the largest weight in its block, so that no single one is lost."
            )
        return notes


def within_memory(run: Callable[[], Any]) -> Any:
    """Return what a function returns; where memory runs out, say so of the prompt."""
    try:
        return run()
    except InterpError:
        raise
    except (MemoryError, RuntimeError) as error:
        if not ran_out(error):
            raise
        raise PromptError(
            f"memory ran out on this prompt ({str(error).splitlines()[0]}); shorten it"
        ) from error


def example_prompt(model: Model) -> str | tuple[int, ...]:
    """Return a text whose words a model knows, or the ids of tokens twice; raises PromptError."""
    ids = repeats(model, n=1, max_length=8).ids[0]
    if (tokenizer := model.tokenizer) is None:
        return ids
    unknown = {getattr(tokenizer, "unk_token_id", None)} - {bos_id(model)}
    for text in (*EXAMPLES, tokenizer.decode(ids, skip_special_tokens=True)):
        with suppress(PromptError):  # it is too long for the model
            if unknown.isdisjoint(checked_prompt(model, text).ids[0]):
                return text
    raise PromptError(f"{model.name} knows the words of no example")


def checked_prompt(model: Model, text: str | Sequence[int]) -> Prompts:
    """Return a prompt that a model can read."""
    if isinstance(text, str):
        if not text.strip():
            raise PromptError("the text is empty")
        require_text("the text", text)
        limit = model.limit
        if limit is not None and len(text) > _CHARACTERS * limit:
            raise PromptError(
                f"the text has {len(text):,} characters; {model.name} has positions for "
                f"{limit:,} tokens; shorten it"
            )
    prompts = Prompts.of(text, model)
    prompts.check(model)
    return prompts
