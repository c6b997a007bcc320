"""Rows of `benchmarks/beside.py` by captum, on the model of transformers."""

import torch
from beside_timing import measure
from captum.attr import LayerIntegratedGradients
from transformers import GPT2LMHeadModel


def integrated(model, inputs):
    ids = torch.tensor(inputs["text"])
    answer = inputs["answers"][0]
    method = LayerIntegratedGradients(
        lambda tokens: model(tokens).logits[:, -1, answer], model.transformer.wte
    )
    scores = method.attribute(
        ids,
        torch.full_like(ids, model.config.eos_token_id),
        n_steps=20,
        method="riemann_middle",
        internal_batch_size=8,
    )
    return scores.sum(-1)[0].tolist()


measure(
    lambda folder: GPT2LMHeadModel.from_pretrained(folder).eval(),
    {"integrated gradients": integrated},
)
