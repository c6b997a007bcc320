"""Rows of `benchmarks/beside.py` by InterpKit, whose ablation is of whole modules."""

import interpkit
import torch
from beside_timing import measure


def load(folder):
    return interpkit.load(folder, attention_impl="eager")


def weights(model, ids):
    """Return the patterns of all heads: it reads one prompt at a time."""
    prompts = [model.attention(torch.tensor([one])) for one in ids]
    return [
        torch.stack([torch.as_tensor(x["weights"]) for x in row])
        for row in zip(*prompts, strict=True)
    ]


def induction(model, inputs):
    half = len(inputs["repeats"][0]) // 2
    kept = weights(model, inputs["repeats"])
    stripes = [x.diagonal(dim1=-2, dim2=-1, offset=1 - half)[..., 1:] for x in kept]
    return [x.mean((0, -1)).tolist() for x in stripes]


def long_prompt(model, inputs):
    return [x[..., 1:, 0].mean((0, -1)).tolist() for x in weights(model, inputs["long"])]


def lens(model, inputs):
    rows = model.lens(torch.tensor(inputs["text"]), position=-1)
    return [row["top1_prob"] for row in rows]


def integrated(model, inputs):
    found = model.attribute(
        " ".join(f"w{x}" for x in inputs["text"][0]),
        target=inputs["answers"][0],
        n_steps=20,
        baseline="pad",
        quadrature="riemann_midpoint",
        auto_bump=False,
    )
    return list(found["scores"])


measure(
    load,
    {
        "induction": induction,
        "first token of a long prompt": long_prompt,
        "lens": lens,
        "integrated gradients": integrated,
    },
)
