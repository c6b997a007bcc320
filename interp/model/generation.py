"""Generation with a cache: edited, captured at every step, and led by a policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.core.tokens import encoded_text
from interp.model.activation_names import HEAD_NAMES
from interp.model.calls.call import Call
from interp.model.calls.sites import Site, softmax_sites
from interp.model.capture import ActivationCache, Recorder
from interp.model.capture_request import CaptureRequest, requested
from interp.model.edits import Edit
from interp.model.hooks.inference import in_this_thread, inference
from interp.model.inputs import generates, position_limit, takes
from interp.model.policy import Policy, Step, decided
from interp.model.views import softmax_view

if TYPE_CHECKING:
    from interp.model.transformer import Transformer


_SHOWN = 200  # characters of a printed text


@dataclass(frozen=True, eq=False, repr=False)
class Generation:
    """Generated ids, their texts, and the captures of each step.

    Args:
        ids: the ids of each row, prompts included, padded on the left; of an encoder-decoder those
            of the decoder.
        steps: the captures, whose first is the prompt.
        start: the column of the first new token.
        texts: the continuation of each row without special tokens; None without a tokenizer.
        why_no_text: the reason where there are no texts.
    """

    ids: Tensor
    steps: tuple[ActivationCache, ...]
    start: int = 0
    texts: tuple[str, ...] | None = None
    why_no_text: str = ""

    @property
    def text(self) -> str | None:
        """The continuation of the only row; None without a tokenizer, as `why_no_text` says.

        Raises:
            OptionError: there are several rows.
        """
        if self.texts is not None and len(self.texts) != 1:
            raise OptionError(f"{len(self.texts)} rows were generated; see `texts`, one for each")
        return None if self.texts is None else self.texts[0]

    def __repr__(self) -> str:
        rows, columns = self.ids.shape
        named = sorted({name for step in self.steps for name, *_ in step.values})
        captured = f", {len(self.steps)} steps with {', '.join(named)}" if named else ""
        size = f"{rows} row{'s' * (rows != 1)} of {columns - self.start} new tokens"
        texts = [self.why_no_text] if self.texts is None else map(repr, self.texts)
        text = "; ".join(texts)
        cut = text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."
        return f"Generation({size} after {self.start}{captured}: {cut})"


_NOT_FOR_GENERATE = ("decoder_input_ids", "decoder_attention_mask", "position_ids")


class _Writing:
    """One generation: it edits and records every step, and asks the policy how to go on."""

    def __init__(
        self,
        model: Transformer,
        request: CaptureRequest,
        edits: Sequence[Edit],
        policy: Policy | None,
        inputs: Mapping[str, Any],
        only_last: bool,
    ) -> None:
        self.model, self.request, self.inputs = model, request, inputs
        self.policy, self.only_last = policy, only_last
        self.given, self.edits = tuple(edits), tuple(model.local_edits(edits))
        self.outer = model.active_edits
        self.names = (*self.outer, *(edit.name for edit in edits))
        self.steps: list[ActivationCache] = []
        self.recorder: Recorder | None = None
        self.paused = False
        self.start = 0
        self.ends: Tensor | None = None  # per row the column at which the policy stopped; or -1

    def end(self, *_: object) -> None:
        """Keep what was recorded in a step, after each forward of the module."""
        if self.recorder is not None and not self.paused:
            if self.only_last:
                self.steps.clear()
            values, heads = self.recorder.values, self.request.heads
            self.steps.append(ActivationCache(torch.empty(0), values, heads, self.names))
            self.recorder = None

    def visit(self, site: Site, call: Call, real: Tensor) -> None:
        """Edit and record an attention."""
        for edit in self.edits:
            edit(call, site, real)
        if self.paused or (site.gated and not call.behind_gate):
            return
        if self.recorder is None:  # an encoder runs before the first forward of the module
            self.recorder = Recorder(self.model, self.request, to=None)
        self.recorder.visit(site, call, real)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores of the next token that the policy decides; a logits processor."""
        assert self.policy is not None
        self.start = self.start or input_ids.shape[1]
        cache = self.steps[-1] if self.steps else ActivationCache(torch.empty(0), {}, {}, ())
        step = Step(self.model, input_ids, self.start, scores, cache, self.inputs, self.beside)
        action = decided(self.policy, step)
        if action.edits is not None:
            edits = (*self.given, *action.edits)
            self.edits = tuple(self.model.local_edits(edits))
            self.names = (*self.outer, *(edit.name for edit in edits))
        stop = torch.as_tensor(action.stop, device=input_ids.device).expand(len(input_ids))
        if self.ends is None:
            self.ends = torch.full((len(input_ids),), -1, device=input_ids.device)
        self.ends = torch.where(stop & (self.ends < 0), input_ids.shape[1], self.ends)
        return scores if action.logits is None else action.logits.float().log_softmax(-1)

    def stopped(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        """Return which rows the policy has ended; a stopping criterion."""
        ended = torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
        if self.ends is None or not bool((self.ends >= 0).any()):
            return ended
        if len(self.ends) != len(input_ids):
            raise OptionError("a policy stopped while beams are searched; use num_beams=1")
        return self.ends >= 0

    def written(self, ids: Tensor, pad: int) -> Tensor:
        """Return the generated ids without the tokens before which the policy stopped."""
        if self.ends is None or not bool((self.ends >= 0).any()):
            return ids
        ends = self.ends.where(self.ends >= 0, ids.shape[1])
        column = torch.arange(ids.shape[1], device=ids.device)
        return ids.masked_fill(column >= ends[:, None], pad)[:, : int(ends.max())]

    @contextmanager
    def beside(self, edits: Sequence[Edit]) -> Iterator[None]:
        """Run the module in the block under further edits, without recording."""
        before = self.edits, self.paused
        self.edits, self.paused = (*self.edits, *self.model.local_edits(edits)), True
        try:
            yield
        finally:
            self.edits, self.paused = before


def generate(
    model: Transformer,
    prompts: Any,
    max_new_tokens: int,
    *,
    names: Sequence[str] = (),
    edits: Sequence[Edit] = (),
    policy: Policy | None = None,
    **options: Any,
) -> Generation:
    """Generate with the model's own cache, greedily by default, and record every step.

    Prompts of unequal length are padded on the left, so that no padding separates a prompt from its
    continuation. A sliding-window cache keeps only the last keys: the key axis of a step counts the
    entries of the cache, not positions in the text. In a hybrid model the softmax layers are read
    and edited; the state from which the others continue does not keep earlier inputs apart. The
    module's own `generate` inside `with model.edited(...)` is edited in the same way.
    """
    if not generates(model.module):
        raise OptionError(
            f"{model.name} ({model.kind}) has no language-model head to generate with"
        )
    inputs = _inputs(model, prompts, max_new_tokens)
    read = (*names, *getattr(policy, "names", ()))
    request = requested(model, tuple(dict.fromkeys(read)), None, None, None, None, None)
    wrong = [n for n in request.names if n not in HEAD_NAMES or n == "result"]
    if wrong:
        raise OptionError(
            f"during generation {', '.join(wrong)} cannot be captured; known: q, k, v, scores, "
            "pattern, z"
        )
    has_softmax = bool(softmax_sites(model.sites))
    reader = softmax_view(model) if has_softmax else model
    writing = _Writing(reader, request, edits, policy, inputs, bool(policy) and not names)
    pad = getattr(model.config, "pad_token_id", None)
    given: dict[str, Any] = {"do_sample": False, "pad_token_id": 0 if pad is None else pad}
    if policy is not None:
        given["logits_processor"] = [*options.pop("logits_processor", ()), writing]
        given["stopping_criteria"] = [*options.pop("stopping_criteria", ()), writing.stopped]
    with ExitStack() as contexts:
        contexts.enter_context(torch.no_grad())
        contexts.enter_context(inference(model.module))
        # a recurrent model is refused only if it is to be read
        if has_softmax or edits or request.names:
            contexts.enter_context(reader.remembered(edits))
            contexts.enter_context(reader.visited(writing.visit, stage="both"))
        done = model.module.register_forward_hook(in_this_thread(writing.end))
        contexts.callback(done.remove)
        output = model.module.generate(  # type: ignore[operator]
            **inputs, max_new_tokens=max_new_tokens, **given | options
        )
    ids = output if isinstance(output, Tensor) else output.sequences
    ids = writing.written(ids, given["pad_token_id"])
    read = inputs.get("input_ids", ids[:, :0]).shape[1]
    if model.kind == "encoder-decoder":  # Whisper's leaves the first token out
        read = int(bool((ids[:, :1] == model.config.decoder_start_token_id).all()))
    return Generation(ids, tuple(writing.steps), read, *_texts(model, ids[:, read:]))


def _texts(model: Transformer, new: Tensor) -> tuple[tuple[str, ...] | None, str]:
    """Return the texts of new tokens, or the reason why there are none."""
    if model.tokenizer is None:
        return None, f"{model.name} has no tokenizer, so its tokens have no text; see `ids`"
    rows = new.tolist()
    return tuple(
        encoded_text(model.tokenizer.decode, x, skip_special_tokens=True) for x in rows
    ), ""


def _inputs(model: Transformer, prompts: Any, new: int) -> dict[str, Any]:
    """Return the inputs of `generate`, whose prompts leave room for the new tokens."""
    if not isinstance(prompts, Mapping):
        prompts = Prompts.of(prompts, model)
        # generated tokens must directly follow the prompt's last token
        if model.kind != "encoder-decoder":
            prompts = replace(prompts, padding="left")
        prompts.check(model)
        reason = model.padding.changes_writing(prompts, new)
        if reason is not None:
            raise PromptError(reason)
    inputs = model.inputs(prompts)
    # generate computes the positions itself, from the mask
    inputs = {k: v for k, v in inputs.items() if k not in _NOT_FOR_GENERATE}
    if "input_ids" in inputs and "attention_mask" in takes(model.module):
        # otherwise generate treats every token with the padding id as padding
        inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
    most, ids = position_limit(model.module), inputs.get("input_ids")
    if most is not None and ids is not None and model.kind != "encoder-decoder":
        longest = int(inputs.get("attention_mask", torch.ones_like(ids)).sum(1).max())
        if longest + new - 1 > most:  # the last token is not read
            raise PromptError(
                f"a prompt of {longest} tokens and {new} new ones need {longest + new - 1} "
                f"positions; {model.name} has {most}"
            )
    return inputs
