"""Controls of a dictionary: decoders and codes that carry none of what was learned."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.dictionaries.dictionary import Dictionary

CONTROLS = {
    "untrained": "the dictionary before training, its activation set to as many codes",
    "shuffled decoder": "the trained one with the rows of its decoder in another order",
    "shuffled codes": "the trained one, each position decoded from another position's codes",
    "random directions": "random unit directions that read and write, with as many codes "
    "per position, each code the projection",
}


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Function from activations to a reconstruction.

    Args:
        dictionary: encoder and decoder.
        shuffled: whether each position is decoded from another position's codes.
        seed: seed of that order.
    """

    dictionary: Dictionary
    shuffled: bool = False
    seed: int = 0

    def __call__(
        self, x: Float[Tensor, "row d_in"]
    ) -> tuple[Float[Tensor, "row d_out"], Float[Tensor, "row d_sae"]]:
        """Return the reconstruction of rows, and their codes."""
        codes = self.dictionary.encode(x)
        used = codes
        if self.shuffled:
            order = torch.randperm(len(x), generator=torch.Generator().manual_seed(self.seed))
            used = codes[order.to(codes.device)]
        return self.dictionary.decode(used, x), codes


def control_reconstructions(
    dictionary: Dictionary, untrained: Dictionary | None, codes: float, seed: int
) -> dict[str, Reconstruction]:
    """Return the controls of a dictionary by their names in `CONTROLS`."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(dictionary.d_sae, generator=generator)
    reconstructions = {} if untrained is None else {"untrained": Reconstruction(untrained)}
    reconstructions["shuffled decoder"] = Reconstruction(
        replace(dictionary, W_dec=dictionary.W_dec[order])
    )
    reconstructions["shuffled codes"] = Reconstruction(dictionary, True, seed)
    k = max(1, min(dictionary.d_sae, round(codes)))
    reconstructions["random directions"] = Reconstruction(
        random_directions(dictionary, k, generator)
    )
    return reconstructions


def random_directions(dictionary: Dictionary, k: int, generator: torch.Generator) -> Dictionary:
    """Return a topk dictionary of random unit directions with the trained one's output bias."""
    written = torch.randn(dictionary.W_dec.shape, generator=generator)
    written = written / written.norm(dim=1, keepdim=True)
    read = written
    if dictionary.is_transcoder:
        read = torch.randn(dictionary.W_enc.T.shape, generator=generator)
        read = read / read.norm(dim=1, keepdim=True)
    return replace(
        dictionary,
        architecture="topk",
        W_enc=read.T.contiguous(),
        W_dec=written,
        b_enc=torch.zeros(dictionary.d_sae),
        parts={},
        k=k,
        rescale=False,
    )
