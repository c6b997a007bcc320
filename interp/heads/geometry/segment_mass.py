"""Attention mass on a segment of the prompt: its pictures, its text, its special tokens."""

from interp.heads.declaration import measurement


@measurement(
    unit="attention mass",
    low=0.0,
    high=1.0,
    requires=("segments",),
    task="none: where a head looks is not yet what it does",
)
def segment_mass(layer, *, segment: str = "image", queries: str = "all"):
    """Attention mass of the queries of one segment on the keys of another.

    In the text of a model that reads pictures, `image` are the placeholders that the pictures fill;
    in a vision tower they are the patches, `special` the class token and `register` the registers.
    A segment that the prompt lacks gets no mass. In a chat the messages of a role are a segment,
    part of the text, and what the template writes around them is special.

    Not for: comparing prompts in which the segment has different lengths; uniform attention already
    gives a longer segment more mass.

    Options:
        segment: keys whose mass is added: text, image, audio, special or register; of a chat also
            system, user, assistant, thinking or tool.
        queries: rows to average over: all, the last one, or those of one segment.
    """
    import torch

    from interp.model.segments import SEGMENTS
    from interp.model.segments import segment as numbers
    from interp_kernels.reductions import SegmentMass

    labels = layer.segments
    mass = layer.reduce(SegmentMass(labels, len(SEGMENTS)))[..., numbers(segment)].double().sum(-1)
    rows = torch.ones(mass.shape[0], 1, mass.shape[2], dtype=torch.bool, device=mass.device)
    if queries == "last":
        mass, rows = mass[..., -1:], rows[..., -1:]
    elif queries != "all":
        rows = torch.isin(labels, labels.new_tensor(numbers(queries)))[:, None]
    return torch.where(rows.expand_as(mass), mass, torch.nan).nanmean(-1)


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
