"""Attention of the first token of an encoder on itself and the last token."""

from interp.heads.declaration import measurement


@measurement(unit="attention mass", low=0.0, high=1.0, requires=("self",))
def cls_rest(layer):
    """Attention of the first token ([CLS]) on itself and on the last token (the separator).

    Near 1 in a layer in which [CLS] rests and reads no words; an encoder whose [CLS] is to hold a
    text must read it in some layer. Two tokens of n by chance.

    Not for: causal models, whose first token sees itself only and always scores 1.

    Reference: Gao and Callan 2021, "Condenser: a Pre-training Architecture for Dense Retrieval"
    (arXiv 2104.08253), after Clark et al. 2019 (arXiv 1906.04341).
    """
    row = layer.call.pattern(slice(0, 1)).double()[:, :, 0]
    return row[..., 0] + (row[..., -1] if row.shape[-1] > 1 else 0.0)
