"""A model in memory and the prompt that was typed last, and the calls that they answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts, text_of
from interp.heads.patterns.capturing import refuse_elsewhere, view
from interp.heads.patterns.result import View
from interp.heads.patterns.stack import Stack
from interp.heads.patterns.tile_names import stack_and_head
from interp.model.inputs import is_encoder_decoder
from interp.profiles.on_prompt import PromptRules
from interp.profiles.rules import chosen_rules
from interp.report.explore import encoded
from interp.report.explore.ablated import (
    NEEDS_REFERENCE,
    PAGE,
    logits_at,
    moved,
    named_edits,
    position_logits,
)
from interp.report.explore.asked import AskedPrompt, checked_prompt, example_prompt, within_memory
from interp.report.explore.encoded import row_answer, rules_answer
from interp.report.explore.queries_keys import TILE, KeptPrompt
from interp.report.explore.requests import (
    GoingOn,
    NewerRequest,
    Turns,
    ablation_of,
    fields,
    prompt_of,
)
from interp.report.explore.written import continuations

if TYPE_CHECKING:
    from interp.model.edits import Edit
    from interp.model.model import Model
    from interp.profiles.result import Profile

SHORT = 512  # tokens up to which every pattern is stored
DENSE = 1 << 28  # bytes of all stored patterns
MEMORY = 1 << 30  # bytes of queries, keys and maps of a long prompt


class Session:
    """A model and its latest prompt. Calls from several threads run one after the other.

    Args:
        model: The loaded model.
        memory: The largest number of bytes of queries, keys and maps of a long prompt.
        short: The largest number of tokens of a prompt whose patterns are stored.
        profile: What the heads do on text, by which rows of a prompt are explained.
        rules: Further rules, such as `interp.profile` takes; a page cannot add one.

    Raises:
        OptionError: The patterns are not available in this process, or the model reads no text.
    """

    def __init__(
        self,
        model: Model,
        *,
        memory: int = MEMORY,
        short: int = SHORT,
        profile: Profile | None = None,
        rules: Iterable[Any] = (),
    ):
        refuse_elsewhere(model)
        if not model.takes_text:
            raise OptionError(
                f"{model.name} ({model.kind}) reads no text, so no prompt can be typed; use "
                "`interp view --image` for an image"
            )
        if memory < 1:
            raise OptionError(f"memory of {memory} bytes; give at least 1")
        self.model, self.memory, self.short = model, memory, short
        self.profile = profile
        self.own_rules = chosen_rules(list(rules), model.tokenizer is not None)
        self._turns, self._count, self._ablations = Turns(), 0, 0
        self._asked: AskedPrompt | None = None
        self._progress = {"done": 0, "of": len(model.sites)}

    def stop(self) -> None:
        """End every request, at its next step."""
        self._turns.stop()

    def about(self) -> dict[str, Any]:
        """Return what a page needs to know of the model before a prompt is typed."""
        model = self.model
        return {
            "name": model.name,
            "kind": model.kind,
            "stacks": [
                {"name": name, "layers": len({s.layer for s in sites}), "heads": sites[0].n_heads}
                for name in model.stacks
                for sites in [[s for s in model.sites if s.stack == name]]
            ],
            "text": model.tokenizer is not None,
            "context": model.context,
            "rules": [rule.name for rule in self.own_rules],
            "profiled": None if self.profile is None else self.profile.provenance.get("corpus", ""),
            "interventions": PAGE,
            "need_reference": NEEDS_REFERENCE,
        }

    def progress(self) -> dict[str, int]:
        """Return how many layers of the latest prompt are `done`, and `of` how many."""
        return self._progress

    def prompt(self, text: str | Sequence[int]) -> dict[str, Any]:
        """Run the model on a prompt and return all heads, coarsely where the prompt is long."""
        prompts = checked_prompt(self.model, text)
        with self._turns.taken("prompt") as going_on:
            self._advance(0, len(self.model.sites))
            self._asked = None  # its memory is free before the next one's is taken
            asked = within_memory(lambda: self._run(prompts, going_on))
            self._asked = asked
            reply = encoded.prompt(asked.shown, self._count, asked.tokens, asked.notes(self.model))
            reply["predictions"] = self._predictions(asked, going_on)
            return reply

    def example(self) -> dict[str, Any]:
        """Return an example as it is typed and the answer to it; nothing where it cannot run."""
        with suppress(PromptError, NewerRequest):
            example = example_prompt(self.model)
            typed = example if isinstance(example, str) else " ".join(map(str, example))
            return {"text": typed, "first": self.prompt(example)}
        return {}

    def stacks(self) -> tuple[Stack, ...]:
        """Return the patterns of the latest prompt, in blocks where it is long."""
        shown = self._latest(self._count).shown
        return shown.stacks if isinstance(shown, View) else shown.stacks()

    def pattern(self, prompt: int, head: str, after: int | None = None) -> dict[str, Any]:
        """Return all weights of one head over a short prompt, and the terms of its scores."""
        with self._turns.taken("pattern"):
            of = self._latest(prompt).patterns(after)
            stack, one = stack_and_head(head, of.stacks[0].name)
            shown = of.stack(stack)
            return encoded.pattern(shown, shown.head(one))

    def tile(
        self, prompt: int, head: str, block: int, row: int, column: int, turn: int | None = None
    ) -> dict[str, Any]:
        """Return one tile of a head's map over a long prompt."""
        with self._turns.taken("tile", turn) as going_on:
            asked = self._latest(prompt)
            shown = asked.shown
            if isinstance(shown, View):
                raise OptionError("this prompt is short; ask for the pattern of the head")
            stack, one = stack_and_head(head, next(iter(shown.texts)))
            values = within_memory(lambda: shown.tile(stack, one, block, row, column, going_on))
            return encoded.tile(values, row * TILE * block, column * TILE * block, block)

    def ablate(
        self,
        prompt: int,
        heads: Sequence[str],
        intervention: str | Sequence[str] = "zero",
        position: int | None = None,
        reference: str | None = None,
    ) -> dict[str, Any]:
        """Return the next tokens of the prompt with and without some heads, and the patterns."""
        with self._turns.taken("ablate") as going_on:
            asked = self._latest(prompt)
            at = asked.n - 1 if position is None else position
            edits = named_edits(self.model, heads, intervention, reference, asked.prompts)
            going_on()
            before = self._clean(asked, at, going_on)
            going_on()
            after = self._logits(asked, at, edits, going_on) if edits else None
            named = "; ".join(edit.name for edit in edits) or None
            going_on()
            return self._redrawn(asked, edits) | {
                "prompt": prompt,
                "intervention": named,
                "position": at,
                "token": asked.tokens[at],
                **moved(self.model, before, after),
            }

    def write(
        self,
        prompt: int,
        heads: Sequence[str],
        intervention: str | Sequence[str] = "zero",
        reference: str | None = None,
    ) -> dict[str, Any]:
        """Return what the model writes after a short prompt, with and without some heads.

        Args are those of `ablate`.
        """
        with self._turns.taken("write") as going_on:
            asked = self._latest(prompt)
            edits = named_edits(self.model, heads, intervention, reference, asked.prompts)
            return within_memory(lambda: continuations(self.model, asked, edits, going_on))

    def rules(self, prompt: int) -> dict[str, Any]:
        """Get the rules on a short prompt: where each fires, and which heads follow the user's."""
        with self._turns.taken("rules"):
            asked = self._latest(prompt)
            return rules_answer(self._on_prompt(asked), asked.patterns())

    def explain(
        self, prompt: int, head: str, query: int, key: int, after: int | None = None
    ) -> dict[str, Any]:
        """Return which rules fire on a pair, and how much of its row the description explains."""
        with self._turns.taken("explain"):
            asked = self._latest(prompt)
            of = asked.patterns(after)
            stack, one = stack_and_head(head, of.stacks[0].name)
            return row_answer(self._on_prompt(asked), of, stack, one, query, key)

    def heads(
        self, prompt: int, head: str, query: int, key: int, after: int | None = None
    ) -> dict[str, Any]:
        """Return the heads of a stack with the largest weights on a pair, as `heads`."""
        with self._turns.taken("heads"):
            of = self._latest(prompt).patterns(after)
            stack, one = stack_and_head(head, of.stacks[0].name)
            shown = of.stack(stack)
            shown.head(one)
            return {"heads": encoded.heads_on_pair(shown, query, key)}

    def _on_prompt(self, asked: AskedPrompt) -> PromptRules:
        """Return the rules on a short prompt, evaluated once."""
        asked.patterns()
        if not asked.rules:
            ids, rules = asked.prompts.ids[0], self.own_rules
            prompt_rules = within_memory(lambda: PromptRules(self.model, ids, self.profile, rules))
            asked.rules.append(prompt_rules)
        return asked.rules[0]

    def _redrawn(self, asked: AskedPrompt, edits: Sequence[Edit]) -> dict[str, Any]:
        """Return how the heads attend under edits; nothing without edits or for a long prompt."""
        asked.ablated.clear()
        if not edits or not isinstance(asked.shown, View):
            return {}
        with self.model.edited(*edits):
            redrawn = within_memory(lambda: view(self.model, asked.prompts.ids[0]))
        self._ablations += 1
        asked.ablated[self._ablations] = redrawn
        pictures = [encoded.heads_picture(dict(stack.weights)) for stack in redrawn.stacks]
        return {"after": self._ablations, "pictures": pictures}

    def _run(self, prompts: Prompts, going_on: GoingOn) -> AskedPrompt:
        model = self.model
        inputs = model.inputs(prompts)
        ids = inputs["decoder_input_ids" if is_encoder_decoder(model.module) else "input_ids"]
        tokens = tuple(text_of(ids[0].tolist(), model))
        n = len(prompts.ids[0])
        self._count += 1
        dense = 4 * n * n * sum(site.n_heads for site in model.sites)
        if n <= self.short and dense <= DENSE:
            shown: View | KeptPrompt = view(model, prompts.ids[0])
        else:
            shown = KeptPrompt(model, inputs, n, self.memory, going_on, self._advance)
        return AskedPrompt(self._count, prompts, inputs, tokens, shown, {}, {}, [])

    def _advance(self, done: int, of: int) -> None:
        self._progress = {"done": done, "of": of}

    def _latest(self, number: int) -> AskedPrompt:
        if self._asked is None:
            raise OptionError("there is no prompt yet; type one first")
        if self._asked.number != number:
            raise OptionError(
                f"prompt {number} was replaced by prompt {self._asked.number}; run it again"
            )
        return self._asked

    def _clean(
        self, asked: AskedPrompt, position: int, going_on: GoingOn
    ) -> Float[Tensor, "d_vocab"]:
        if position not in asked.clean:
            asked.clean.clear()  # one position is looked at many times
            asked.clean[position] = self._logits(asked, position, (), going_on)
        return asked.clean[position]

    def _logits(
        self, asked: AskedPrompt, position: int, edits: Sequence[Edit], going_on: GoingOn
    ) -> Float[Tensor, "d_vocab"]:
        return within_memory(
            lambda: logits_at(self.model, asked.inputs, asked.n, position, edits, going_on)
        )

    def _predictions(self, asked: AskedPrompt, going_on: GoingOn) -> dict[str, Any]:
        at = asked.n - 1
        try:
            # a long prompt's pass has them already; an ablation compares two runs of one kind
            output = asked.shown.out if isinstance(asked.shown, KeptPrompt) else None
            logits = (
                self._clean(asked, at, going_on)
                if output is None
                else position_logits(self.model, output, 1)
            )
            predictions = moved(self.model, logits, None)
        except PromptError as error:  # an encoder without a language-model head has patterns too
            return {"tokens": [], "why": str(error)}
        return {"position": at, "token": asked.tokens[at], **predictions}


NO_MODEL = (
    "these results hold no model, so no prompt can be run; start `interp explore` with the model "
    "too, such as `interp explore results gpt2`"
)
_PATTERN = {"prompt": int, "head": str}
_TILE = _PATTERN | {"block": int, "row": int, "column": int}
TYPES: Mapping[str, tuple[Mapping[str, type], Mapping[str, type]]] = {
    "pattern": (_PATTERN, {"after": int}),
    "tile": (_TILE, {"turn": int}),
    "progress": ({}, {}),
    "rules": ({"prompt": int}, {}),
    "explain": (_PATTERN | {"query": int, "key": int}, {"after": int}),
    "heads": (_PATTERN | {"query": int, "key": int}, {"after": int}),
}
"""Needed and optional fields of the calls that are queries."""


def answer(session: Session | None, call: str, given: Any) -> dict[str, Any]:
    """Answer one call with data that can be written as JSON."""
    if session is None:
        raise OptionError(NO_MODEL)
    if call == "prompt":
        return session.prompt(prompt_of(given))
    if call == "ablate":
        return session.ablate(**ablation_of(given))
    if call == "write":
        return session.write(**ablation_of(given, at_position=False))
    if call not in TYPES:
        known = ", ".join(("prompt", "ablate", "write", *TYPES))
        raise OptionError(f"no call {str(call)[:60]!r}; known: {known}")
    return getattr(session, call)(**fields(given, *TYPES[call]))
