"""Interventions on a head's attention to chosen keys: raised, lowered, or as a description says.

Keys are named by their position in the prompt, so that an edit holds for a whole prompt and for
every step of a generation, whatever the cache has kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.core.errors import InterpError, OptionError
from interp.core.user_function import predicate_inputs
from interp.model.calls.steps import key_positions, query_positions
from interp.model.edits import Edit, Positions
from interp.model.head_arguments import HeadsLike, parse_heads
from interp_kernels.prompt_ids import prompt_ids

if TYPE_CHECKING:
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site

ChosenKeys = slice | int | Sequence[int] | Tensor
BLOCK = 2**22  # entries of a pattern that are changed at a time


def reweight(
    heads: HeadsLike,
    keys: ChosenKeys,
    factor: float,
    *,
    positions: Positions = None,
    stack: str | None = None,
) -> Edit:
    """Multiply the attention of a head to some keys by a factor, and normalise its rows again.

    0 hides the keys; infinity leaves only them. The logarithm of the factor is added to the scores
    in float32, before the softmax and its sinks; scores are never moved by a large constant, which
    in 16 bits would make all weights equal. A row that would see nothing stays as it is.

    Args:
        heads: edited heads.
        keys: positions of the keys in each prompt, counted from its first real token (for cross
            attention those of the source), or a mask `[prompt, position]`.
        factor: the factor, from 0 to infinity.
        positions: edited query positions; all by default.
        stack: attention stack; all by default.

    Reference: Zhang et al. 2024, "Tell Your Model Where to Attend: Post-hoc Attention Steering for
    LLMs" (a factor); Gandikota and Bau 2026 (only the keys).

    Raises:
        OptionError: the factor is negative, or keys are counted from the end.
    """
    if not factor >= 0:
        raise OptionError(f"reweight with the factor {factor:g}; give a number from 0 to infinity")
    _require_from_start(keys)

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        named = named_keys(keys, key_positions(call, real, site), site)[:, None, None]
        hidden = named if factor == 0 else ~named
        z = torch.empty_like(call.z)
        for rows in _blocks(call):
            scores, seen = call.scores(rows), call.visible(rows)
            if 0 < factor < math.inf:
                changed = scores + math.log(factor) * named
            else:
                left = (seen & ~hidden).any(-1, keepdim=True)
                changed = scores.masked_fill(hidden & left, torch.finfo(scores.dtype).min)
            z[:, :, rows] = call.mix(call.normalised(changed)).to(z.dtype)
        return z

    detail = f"{_shown(keys)} x {factor:g}"
    heads = parse_heads(heads)
    return Edit("reweight", heads, replace, positions, stack, detail, of_pattern=True)


def set_targets(
    heads: HeadsLike,
    predicate: Callable[..., Any],
    *,
    positions: Positions = None,
    stack: str | None = None,
) -> Edit:
    """Replace the attention of a head by what a description predicts: even over its targets.

    Rows without a visible target keep their own attention.

    Args:
        heads: edited heads.
        predicate: a detector, or a function `(query, key)` or `(query, key, tokens)` of positions
            and the prompt's ids that returns which pairs are targets.
        positions: edited query positions; all by default.
        stack: attention stack; all by default.

    Raises:
        OptionError: the predicate takes other arguments.
    """
    name = getattr(predicate, "name", getattr(predicate, "__name__", "predicate"))
    function: Callable[..., Any] = getattr(predicate, "predicate", predicate)
    analysis = function is not predicate
    reads = predicate.inputs if analysis else predicate_inputs(function, name)  # type: ignore[attr-defined]

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        key = key_positions(call, real, site)
        targets = _targets(function, name, "tokens" in reads, analysis, call, real, key, site)
        z = torch.empty_like(call.z)
        for rows in _blocks(call):
            pattern = call.pattern(rows)
            held = (targets[:, None, rows] & call.visible(rows)).to(pattern.dtype)
            count = held.sum(-1, keepdim=True)
            new = torch.where(count > 0, held / count.clamp_min(1), pattern)
            z[:, :, rows] = call.mix(new).to(z)
        return z

    heads = parse_heads(heads)
    return Edit("set-targets", heads, replace, positions, stack, str(name), of_pattern=True)


def _blocks(call: Call) -> Iterator[Int[Tensor, " row"]]:
    """Return the query rows of a call in blocks of bounded memory."""
    batch, heads, queries = call.z.shape[:3]
    size = max(1, BLOCK // max(1, batch * heads * call.v.shape[2]))
    for start in range(0, queries, size):
        yield torch.arange(start, min(start + size, queries), device=call.z.device)


def _require_from_start(keys: ChosenKeys) -> None:
    if isinstance(keys, Tensor):
        if keys.dtype != torch.bool or keys.dim() != 2:
            raise OptionError(
                f"keys are a tensor {tuple(keys.shape)} of {keys.dtype}; give a bool mask [prompt, "
                "position], or positions"
            )
        return
    ends = [keys.start, keys.stop] if isinstance(keys, slice) else keys
    ends = [ends] if isinstance(ends, int) else ends
    if any(x is not None and x < 0 for x in ends):
        raise OptionError(
            f"{_shown(keys)} are counted from the end, which moves while a model writes; count "
            "them from the first token"
        )


def named_keys(
    keys: ChosenKeys, position: Int[Tensor, "batch key_pos"], site: Site
) -> Bool[Tensor, "batch key_pos"]:
    """Return which keys an edit names, from the position of each in its prompt."""
    inside = position >= 0
    if isinstance(keys, slice):
        start, step = keys.start or 0, keys.step or 1
        inside = inside & (position >= start) & ((position - start) % step == 0)
        return inside if keys.stop is None else inside & (position < keys.stop)
    if not isinstance(keys, Tensor):
        wanted = [keys] if isinstance(keys, int) else list(keys)
        return inside & torch.isin(position, torch.tensor(wanted, device=position.device))
    mask, batch = keys.to(position.device), len(position)
    if batch % len(mask):
        raise OptionError(f"{site.name}: the mask of keys has {len(mask)} prompts, the run {batch}")
    mask = mask.repeat_interleave(batch // len(mask), 0)  # beams of a prompt
    inside = inside & (position < mask.shape[1])
    return inside & mask.gather(1, position.clamp(0, mask.shape[1] - 1))


def _targets(
    function: Callable[..., Any],
    name: str,
    reads_text: bool,
    analysis: bool,
    call: Call,
    real: Tensor,
    key: Int[Tensor, "batch key_pos"],
    site: Site,
) -> Bool[Tensor, "batch query_pos key_pos"]:
    """Return the pairs of queries and keys that a predicate names, of each prompt."""
    order = query_positions(real, call.before).clamp_min(0)
    if reads_text and call.text is None:
        raise OptionError(
            f"{name} reads the tokens of the text, which are not known at {site.name}: run prompts "
            "of token ids, or generate with the model's own `generate`"
        )
    pairs = torch.zeros(*order.shape, key.shape[1], dtype=torch.bool, device=key.device)
    for row in range(len(real)):
        length = int(order[row].max()) + 1
        given = {}
        if reads_text:
            assert call.text is not None
            # padding stands on the left, or on the right of a whole prompt
            right = not call.past and not bool(real[row, -1])
            text = call.text[row, :length] if right else call.text[row, -length:]
            given = {"tokens": prompt_ids(text)}
        inside = (key[row] >= 0) & (key[row] < length)
        at = order[row][:, None], key[row].clamp(0, length - 1)[None]
        try:
            answer = function(*at, **given) if analysis else function(*at, *given.values())
        except InterpError:
            raise
        except Exception as error:  # any error of a user-supplied function is reported by its name
            raise OptionError(f"{name} raised {type(error).__name__}: {error}") from error
        if not isinstance(answer, Tensor) or answer.dtype != torch.bool:
            raise OptionError(f"{name} returned {type(answer).__name__}; expected a bool tensor")
        pairs[row] = answer & inside
    return pairs


def _shown(keys: ChosenKeys) -> str:
    if isinstance(keys, slice):
        return f"keys {keys.start or 0}:{'' if keys.stop is None else keys.stop}"
    return "masked keys" if isinstance(keys, Tensor) else f"keys {keys}"
