"""Attention between the patches of an image, which form a grid."""

from __future__ import annotations

import torch
from torch import nn

from training.forms.host_rules import (
    GridRule,
    convolved_on_grid,
    means_of_regions,
    placed,
    regions,
)
from training.forms.rule import (
    Chosen,
    Heads,
    MapBlock,
    Projected,
    Rule,
    RuleShape,
    SeenBlock,
    Stream,
    among_largest,
)
from training.forms.rules.features import FocusedLinearAttention
from training.forms.rules.no_token import MemorySlotsAttention


class PatchesAttention(GridRule):
    """Patches (Dosovitskiy et al. 2020, ViT, arXiv:2010.11929): softmax over all patches.

    What the other forms for images are compared with.
    """


class GridPositionsAttention(GridRule):
    """Grid positions (Chu et al. 2021, CPVT, arXiv:2102.10882): x + a convolution over the grid.

    Each channel is convolved over 3 x 3 patches, with zeros around the image, and there is no
    table of positions; softmax attention follows. A patch knows its place by its neighbours.
    """

    own_positions = True
    width = 3

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        size = (shape.d_model, self.width, self.width)
        self.kernel = nn.Parameter(torch.randn(size) / self.width)

    def within(self, x: Stream, context: tuple[int, int]) -> Projected:
        """Add the convolution before the projections."""
        given = super().within(x + convolved_on_grid(x, self.kernel, context), context)
        given.x = x
        return given


class FocusedGridAttention(FocusedLinearAttention, GridRule):
    """Focused on a grid (Han et al. 2023, FLatten, arXiv:2308.00442): linear, and a convolution.

    phi(x) = |r| / |r^3| r^3 with r = relu(x) + 1e-6. z = M v + v convolved over 5 x 5 patches,
    with the same kernels for all heads; kernels differ by channel, so this part is kept apart
    from the map. What a map of low rank cannot tell apart, the convolution does.
    """

    width = 5

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        size = (shape.d_head, self.width, self.width)
        self.kernel = nn.Parameter(torch.randn(size) / self.width)

    def rest(self, given: Projected) -> Heads:
        """Return the convolved values."""
        return convolved_on_grid(given.v, self.kernel, given.grid)

    def mix(self, given: Projected) -> Heads:
        """Sum values per feature first, and add the convolution."""
        q, k = self.feature(given.q, given), self.feature(given.k, given)
        total = q @ k.sum(2)[..., None] + self.least
        return q @ (k.mT @ given.v) / total + self.rest(given)


class HaloAttention(GridRule):
    """Halo (Vaswani et al. 2021, HaloNet, arXiv:2103.12731): a block of patches and its rim.

    Rows are in blocks of 2 x 2 patches; all rows of a block see it and 1 patch around it, with a
    learned score of the distance in each direction. Windows that overlap and are shared.
    """

    size = 2
    halo = 1
    farthest = 4

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.apart = nn.Parameter(torch.randn(2, shape.n_heads, 2 * self.farthest + 1))

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Add the scores of the distances down and across."""
        found = super().scores(given, rows)
        of_row, of_key = placed(rows, given), placed(given.keys, given)
        for bias, a, b in zip(self.apart, of_row, of_key, strict=True):
            gap = (b - a[:, None]).clamp(-self.farthest, self.farthest) + self.farthest
            found = found + bias[:, gap]
        return found

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep the row's block and the rim around it."""
        found = torch.ones((), dtype=torch.bool, device=rows.device)
        for a, b in zip(placed(rows, given), placed(given.keys, given), strict=True):
            first = (a // self.size * self.size)[:, None] - self.halo
            found = found & (b >= first) & (b < first + self.size + 2 * self.halo)
        return found


class GridRoutingAttention(GridRule):
    """Grid routing (Zhu et al. 2023, BiFormer, arXiv:2303.08810): regions first, then patches.

    Regions are 2 x 2 patches; a region's mean query chooses the 4 regions of the largest
    products with their mean keys. z = M v + v convolved over 5 x 5 patches, a kernel per channel,
    which is kept apart from the map. Each region looks where its content sends it.
    """

    size = 2
    kept = 4
    width = 5

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        size = (self.d_out, self.width, self.width)
        self.kernel = nn.Parameter(torch.randn(size) / self.width)

    def rest(self, given: Projected) -> Heads:
        """Return the convolved values."""
        values = given.v.transpose(1, 2).flatten(2)
        return self.split(convolved_on_grid(values, self.kernel, given.grid))

    def mix(self, given: Projected) -> Heads:
        """Add the convolution to the attended values."""
        return super().mix(given) + self.rest(given)

    def chosen(self, given: Projected) -> SeenBlock:
        """Return which regions each region sees."""
        q, k = (means_of_regions(t, given, self.size) for t in (given.q, given.k))
        return among_largest(q @ k.mT, self.kept)

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep patches of the regions that the row's region chose."""
        found = self.chosen(given)[:, :, regions(given, rows, self.size)]
        return found[..., regions(given, given.keys, self.size)]


class MemoryTokensAttention(MemorySlotsAttention, GridRule):
    """Memory tokens (Sandler et al. 2022, arXiv:2203.15243): learned tokens beside the patches.

    Keys and values of 5 learned inputs of the layer stand beside those of the patches; nothing is
    written back to them. z = M v + the memory's weights times its values. A layer can be taught
    anew by what it attends to.
    """

    slots = 5

    def __init__(self, shape: RuleShape):
        Rule.__init__(self, shape)
        self.memory = nn.Parameter(torch.randn(1, self.slots, shape.d_model))

    @property
    def slot_keys(self) -> Heads:
        """Keys of the memory."""
        return self.split(self.key(self.memory))[0]

    @property
    def slot_values(self) -> Heads:
        """Values of the memory."""
        return self.split(self.value(self.memory))[0]


class InnerPatchesAttention(GridRule):
    """Inner patches (Han et al. 2021, Transformer in Transformer, arXiv:2103.00112).

    Each patch holds 2 x 2 inner tokens, which attend to one another inside their patch in a
    layer of their own and are added to it; softmax between patches follows. Both are read.
    """

    inner = True
