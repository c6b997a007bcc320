"""Rows of `benchmarks/beside.py` by nnsight, through nnterp's names of modules."""

import torch
from beside_timing import measure
from nnterp import StandardizedTransformer


def load(folder):
    return StandardizedTransformer(folder, enable_attention_probs=True, dtype=torch.float32)


def patterns(model, ids, read):
    kept = [None] * model.num_layers
    with torch.no_grad(), model.trace(torch.tensor(ids)):
        for layer in range(model.num_layers):
            kept[layer] = read(model.attention_probabilities[layer]).save()
    return kept


def induction(model, inputs):
    half = len(inputs["repeats"][0]) // 2

    def stripe(p):
        return p.diagonal(dim1=-2, dim2=-1, offset=1 - half)[..., 1:].mean((0, -1))

    return [x.tolist() for x in patterns(model, inputs["repeats"], stripe)]


def long_prompt(model, inputs):
    kept = patterns(model, inputs["long"], lambda p: p[:, :, 1:, 0].mean((0, -1)))
    return [x.tolist() for x in kept]


def difference(logits, inputs):
    rows, last = range(len(inputs["answers"])), logits[:, -1]
    return (last[rows, inputs["answers"]] - last[rows, inputs["wrong"]]).mean()


def ablation(model, inputs):
    clean, width = torch.tensor(inputs["clean"]), model.hidden_size // model.num_heads
    effects = []
    with torch.no_grad():
        with model.trace(clean):
            full = difference(model.logits, inputs).save()
        for layer in range(model.num_layers):
            for head in range(model.num_heads):
                part = slice(head * width, head * width + width)
                with model.trace(clean):
                    model.layers[layer].self_attn.c_proj.input[:, :, part] = 0
                    value = difference(model.logits, inputs).save()
                effects.append((full - value).item())
    return effects


def attribution_patching(model, inputs):
    layers = range(model.num_layers)
    with torch.no_grad(), model.trace(torch.tensor(inputs["corrupted"])):
        corrupted = [].save()
        for layer in layers:
            corrupted.append(model.layers[layer].self_attn.c_proj.input)
    with model.trace(torch.tensor(inputs["clean"])):
        values, grads = [].save(), [].save()
        for layer in layers:
            values.append(model.layers[layer].self_attn.c_proj.input)
        value = difference(model.logits, inputs)
        with value.backward():
            for layer in reversed(layers):
                grads.append(values[layer].grad)
    parts = [(a - b) * g for a, b, g in zip(values, corrupted, grads[::-1], strict=True)]
    return [x.unflatten(-1, (model.num_heads, -1)).sum((0, 1, 3)).tolist() for x in parts]


def lens(model, inputs):
    with torch.no_grad(), model.trace(torch.tensor(inputs["text"])):
        depths = [].save()
        depths.append(model.project_on_vocab(model.layers_input[0])[0])
        for layer in range(model.num_layers):
            depths.append(model.project_on_vocab(model.layers_output[layer])[0])
    _ = [depth.topk(5) for depth in depths]
    return [depth[:, inputs["answers"][0]].tolist() for depth in depths]


def rollout(model, inputs):
    eye = torch.eye(len(inputs["text"][0]))
    total = eye
    for pattern in patterns(model, inputs["text"], lambda p: p[0].mean(0)):
        total = (pattern + eye) / 2 @ total
    return total[-1].tolist()


measure(
    load,
    {
        "induction": induction,
        "first token of a long prompt": long_prompt,
        "ablation": ablation,
        "attribution patching": attribution_patching,
        "lens": lens,
        "rollout": rollout,
    },
)
