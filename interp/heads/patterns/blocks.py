"""Attention over a long prompt as exact sums over blocks, with tiles token by token.

The statistics kernels never store the pattern, so that memory grows linearly with the length of the
prompt. Blocks are exact sums; a tile is computed again from queries and keys.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError, PromptError, StatisticsError
from interp.core.head import Head
from interp.core.prompts import Prompts
from interp.core.ties import ranked
from interp.heads.patterns.capturing import (
    edited_notes,
    input_texts,
    named_heads,
    refuse_elsewhere,
    sequences_of,
    stack_tokens,
)
from interp.heads.patterns.result import View
from interp.heads.patterns.stack import PER_QUERY, Link, Stack, Tile, strongest_links
from interp.heads.patterns.tile_names import TileAsked, require_within, tile_parts
from interp.heads.patterns.zooming import with_zooms
from interp.model.calls.call import Call, RecordedCall
from interp.model.calls.sites import Site
from interp.model.content import model_provenance
from interp.model.hooks.kernel_call import to_attention
from interp.model.model_argument import one_model
from interp_kernels import attention_statistics, reference
from interp_kernels.errors import KernelError
from interp_kernels.reductions import PooledMap, Reduction, TopK
from interp_kernels.reductions import Tile as TileOf

if TYPE_CHECKING:
    import pandas as pd

    from interp.model.model import Model

BLOCKS = 256  # the largest number of blocks down and across by default
MOST_BLOCKS = 1_024  # the largest number with a given block size
HEAVIEST = 4
Advance = Callable[[int, int], None]


class _Enough(Exception):
    """Signal that ends a forward pass."""


@dataclass(frozen=True, eq=False, repr=False)
class LongView(View):
    """Attention over a long prompt in blocks; made by `long_view`.

    `masses[stack, head]` are the exact sums of the pattern over each block of queries and keys.
    """

    masses: Mapping[tuple[str, Head], Float[np.ndarray, "query_block key_block"]] = field(
        default_factory=dict
    )
    block: int = 1
    model: Model | None = None
    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    tokens: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=dict)

    def _stored(self) -> LongView:
        """Return the view without its model, which files do not hold."""
        stored = copy.copy(self)
        object.__setattr__(stored, "model", None)
        return stored

    def tile(
        self,
        layer: int,
        head: int,
        queries: range | tuple[int, int],
        keys: range | tuple[int, int],
        stack: str | None = None,
    ) -> Tile:
        """Compute a tile of one head's pattern, token by token, in another forward pass.

        Args:
            layer: The layer.
            head: The head.
            queries: The first query and the one after the last, as a range or a pair.
            keys: The first key and the one after the last, as a range or a pair.
            stack: The stack, if it is not the first.

        Raises:
            OptionError: The head or the positions do not exist, or there are more than 1,024 of
                either.
        """
        rows, columns = (x if isinstance(x, range) else range(*x) for x in (queries, keys))
        asked = TileAsked(self.stack(stack).name, Head(layer, head), rows, columns)
        return self._computed([asked])[0]

    def with_tiles(self, asked: Sequence[str | TileAsked]) -> LongView:
        """Return the view with tiles such as "L1H3:4000-4256,0-256" (ends not included).

        Raises:
            OptionError: A tile cannot be read, or does not exist.
        """
        read = [self._read(one) for one in asked]
        pieces = list(zip(read, self._computed(read), strict=True))
        stacks = [
            replace(s, tiles=(*s.tiles, *(t for where, t in pieces if where.stack == s.name)))
            for s in self.stacks
        ]
        return replace(self, stacks=tuple(stacks))

    def heaviest(self, n: int = HEAVIEST) -> list[TileAsked]:
        """Return the blocks with the largest share of their queries' attention, one per head.

        Blocks near the diagonal and on the first keys are excluded: they are heavy in all models.
        """
        candidates = []
        for stack in self.stacks:
            q_tokens, k_tokens = self.tokens[stack.name]
            same = q_tokens == k_tokens
            for head, share in stack.weights.items():
                block_q, block_k = np.indices(share.shape)
                far = (block_k > 0) & ((np.abs(block_q - block_k) > 1) | (not same))
                if not (far & (share > 0)).any():
                    continue
                at = np.unravel_index(int(np.where(far, share, -1.0).argmax()), share.shape)
                q, k = (int(x) * self.block for x in at)
                rows = range(q, min(q + self.block, len(q_tokens)))
                columns = range(k, min(k + self.block, len(k_tokens)))
                candidates.append((float(share[at]), stack.name, head, rows, columns))
        candidates.sort(key=lambda one: -one[0])
        return [
            TileAsked(name, head, rows, columns, f"a heavy block: {share:.3f} of its queries")
            for share, name, head, rows, columns in candidates[:n]
        ]

    def links(self) -> pd.DataFrame:
        """Return the strongest links of every head to distant keys, the strongest first.

        Columns: stack, layer, head, query, query_token, key, key_token, weight. The first key and
        the tokens beside the query are excluded; a head has at most one link per query, and 8.
        """
        import pandas as pd

        rows = [
            {"stack": s.name, "layer": head.layer, "head": head.head, **vars(link)}
            for s in self.stacks
            for head, links in s.links.items()
            for link in links
        ]
        columns = ["stack", "layer", "head", "query", "query_token", "key", "key_token", "weight"]
        frame = pd.DataFrame(rows, columns=columns)
        return ranked(frame, "weight").reset_index(drop=True)

    def _read(self, asked: str | TileAsked) -> TileAsked:
        if isinstance(asked, TileAsked):
            return asked
        stack, one, q0, q1, k0, k1 = tile_parts(asked)
        holding = [s.name for s in self.stacks if one in s.weights and stack in (None, s.name)]
        if len(holding) > 1:
            raise OptionError(f"{one} is in {', '.join(holding)}; write {holding[0]}.{asked}")
        name = holding[0] if holding else self.stack(stack).name
        return TileAsked(name, one, range(q0, q1), range(k0, k1))

    def _computed(self, asked: Sequence[TileAsked]) -> list[Tile]:
        for one in asked:
            shown = self.stack(one.stack)
            shown.head(one.head)
            for what, part, tokens in zip(
                ("queries", "keys"), (one.queries, one.keys), self.tokens[one.stack], strict=True
            ):
                require_within((part.start, part.stop), len(tokens), what)
        tiles: dict[int, Tile] = {}
        reductions: dict[tuple[str, int], list[Reduction]] = {}
        for at, one in enumerate(asked):
            tile = TileOf(tuple(one.queries), tuple(one.keys), name=str(at))
            reductions.setdefault((one.stack, one.head.layer), []).append(tile)

        def keep(name: str, values: Tensor, call: Call, site: Site) -> None:
            one = asked[int(name)]
            q_tokens, k_tokens = self.tokens[one.stack]
            tiles[int(name)] = Tile(
                one.head,
                one.queries,
                one.keys,
                values[0, one.head.head].float().cpu().numpy(),
                tuple(q_tokens[i] for i in one.queries),
                tuple(k_tokens[i] for i in one.keys),
                one.why,
            )

        if not asked:
            return []
        if self.model is None:
            raise OptionError(
                "This view was read from a file and holds no model. Compute it again with "
                "long_view to show further tiles."
            )
        _streamed(self.model, self.inputs, reductions, keep, lambda done, of: None)
        return [tiles[at] for at in range(len(asked))]


def long_view(
    model: Any,
    text: Any,
    *,
    context: int | None = None,
    block: int | None = None,
    stack: str | None = None,
    heads: Sequence[Any] = (),
    tiles: Sequence[str] = (),
    heaviest: int = HEAVIEST,
    title: str | None = None,
    advance: Advance = lambda done, of: None,
) -> LongView:
    """Compute exact sums of attention over blocks of a long text, without storing a pattern.

    Args:
        model: A loaded model, or a source that `load` accepts.
        text: A text or token ids.
        context: The number of tokens to use from the start of the text; all by default.
        block: The tokens of a block; by default a power of two that makes at most 256 blocks.
        stack: The stack to use; all by default.
        heads: The heads that the page opens first.
        tiles: Tiles to show token by token, such as "L1H3:4000-4256,0-256".
        heaviest: The number of heavy blocks to show token by token in addition.
        title: The title of the page.
        advance: A function that is called after each layer with the layers done and their number.

    Raises:
        PromptError: The text is empty, too long for the model, or shorter than `context`.
        OptionError: The heads, the stack or the tiles do not exist.
        StatisticsError: The kernels do not support a layer.
    """
    model = one_model(model)
    refuse_elsewhere(model)
    prompts = _one_prompt(model, text, context)
    inputs = model.inputs(prompts)
    n = len(prompts.ids[0])
    if block is not None and block < 1:
        raise OptionError(f"block {block}; it holds at least 1 token")
    size = block or max(16, 1 << max(0, (n - 1).bit_length() - BLOCKS.bit_length() + 1))
    if -(-n // size) > MOST_BLOCKS:
        raise OptionError(
            f"{n:,} tokens in blocks of {size} are {-(-n // size):,} blocks; at most "
            f"{MOST_BLOCKS:,} down and across are kept, so give a block of {-(-n // MOST_BLOCKS)}"
        )
    sites = [site for site in model.sites if stack in (None, site.stack)]
    if not sites:
        raise OptionError(f"no stack {stack!r}; {model.name} has {', '.join(model.stacks)}")
    named = named_heads(model, heads, stack)
    for one in tiles:  # before the long run
        _, head, *ends = tile_parts(one)
        named_heads(model, [head], stack)
        require_within(ends[:2], n, "queries")
        require_within(ends[2:], n, "keys")
    sequences = sequences_of(model, inputs)
    masses: dict[tuple[str, Head], np.ndarray] = {}
    tokens: dict[str, Any] = {}

    links: dict[tuple[str, Head], tuple[Link, ...]] = {}

    def keep(name: str, values: Any, call: Call, site: Site) -> None:
        shape = call.z.shape[2], call.v.shape[2]
        texts = tokens.setdefault(site.stack, stack_tokens(site.stack, sequences, shape))
        if name == "top_k":
            of_heads = enumerate(strongest_links(values, *texts))
            links.update({(site.stack, Head(site.layer, head)): x for head, x in of_heads})
            return
        for head, sums in enumerate(values[0].float().cpu().numpy()):
            masses[site.stack, Head(site.layer, head)] = sums

    reductions: dict[tuple[str, int], list[Reduction]] = {
        (site.stack, site.layer): [PooledMap(size), TopK(PER_QUERY)] for site in sites
    }
    _streamed(model, inputs, reductions, keep, advance)
    in_blocks = [_in_blocks(name, masses, links, tokens[name], size) for name in tokens]
    stacks = with_zooms(model, inputs, in_blocks, named)
    provenance = model_provenance(model) | {
        "made_by": "interp.heads.patterns.long_view",
        "prompts": {
            "design": prompts.design,
            "hash": prompts.hash,
            "n": 1,
            "tokens": n,
            "text": input_texts(model, inputs),
        },
        "block": size,
        "edits": list(model.active_edits),
    }
    shown = LongView(
        stacks,
        title or f"{model.name}: attention over {n:,} tokens",
        named,
        (
            f"Each point of the small maps is the exact sum of the pattern over {size} queries and "
            f"{size} keys, divided by the number of queries; the pattern itself was never stored.",
            *edited_notes(model),
        ),
        provenance,
        masses,
        size,
        model,
        inputs,
        tokens,
    )
    return shown.with_tiles([*tiles, *shown.heaviest(heaviest)])


def _one_prompt(model: Model, text: Any, context: int | None) -> Prompts:
    if isinstance(text, str) and not text.strip():
        raise PromptError("the text is empty")
    prompts = Prompts.of(text, model)
    if len(prompts) != 1:
        raise OptionError(f"{len(prompts)} texts given; show one at a time")
    if context is None:
        return prompts
    ids = prompts.ids[0]
    if context < 1 or len(ids) < context:
        raise PromptError(f"the text has {len(ids)} tokens; context {context} asks for more")
    design = f"first {context} tokens of a text"
    return replace(prompts.beginning(context), clusters=None, design=design)


def _streamed(
    model: Model,
    inputs: Mapping[str, Tensor],
    reductions: Mapping[tuple[str, int], Sequence[Reduction]],
    keep: Callable[[str, Tensor, Call, Site], None],
    advance: Advance,
) -> None:
    """Run the model until all requested sites were visited, and pass each reduction to `keep`."""
    seen = 0

    def visit(site: Site, call: Call, real: Tensor) -> None:
        nonlocal seen
        asked = reductions.get((site.stack, site.layer))
        if asked is None:
            return
        model.require_finite(call, site)
        try:
            attention = to_attention(call, real, None)
            if isinstance(call, RecordedCall):  # such code stores its pattern
                pattern, scores = call.pattern() * call.visible(), call.scores()
                values = {r.name: reference.evaluate(r, attention, pattern, scores) for r in asked}
            else:
                values = attention_statistics(attention, asked, backend="auto")
        except KernelError as error:
            raise StatisticsError(f"{model.name}, {site.name}: {error}") from error
        for reduction in asked:
            value: Any = values[reduction.name]
            keep(reduction.name, value, call, site)
        seen += 1
        advance(seen, len(reductions))
        if seen == len(reductions):
            raise _Enough

    try:
        model.read(inputs, visit, last=1, streamed=True)
    except _Enough:
        return
    raise StatisticsError(
        f"{model.name}: {seen} of {len(reductions)} layers with attention ran on these inputs; "
        "name the stack that does"
    )


def _in_blocks(
    name: str,
    masses: Mapping[tuple[str, Head], np.ndarray],
    links: Mapping[tuple[str, Head], tuple[Link, ...]],
    tokens: tuple[tuple[str, ...], tuple[str, ...]],
    size: int,
) -> Stack:
    queries = len(tokens[0])
    rows = np.minimum(size, queries - np.arange(0, queries, size))[:, None]
    first = [
        tuple("".join(side[at : at + 3]) for at in range(0, len(side), size)) for side in tokens
    ]
    return Stack(
        name,
        {head: sums / rows for (stack, head), sums in masses.items() if stack == name},
        first[0],
        first[1],
        without_terms="a map in blocks holds no queries and keys",
        block=size,
        n_queries=queries,
        n_keys=len(tokens[1]),
        links={head: of_head for (stack, head), of_head in links.items() if stack == name},
    )
