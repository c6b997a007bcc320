"""Rows of `benchmarks/beside.py` by TransformerLens, as its documentation does them."""

import torch
from beside_timing import measure
from transformer_lens.model_bridge import TransformerBridge


def load(folder):
    return TransformerBridge.boot_transformers(folder, device="cpu", dtype=torch.float32)


def heads(model):
    return [(i, j) for i in range(model.cfg.n_layers) for j in range(model.cfg.n_heads)]


def induction(model, inputs):
    tokens = torch.tensor(inputs["repeats"])
    half = tokens.shape[1] // 2
    scores = torch.zeros(model.cfg.n_layers, model.cfg.n_heads)

    def hook(pattern, hook):
        stripe = pattern.diagonal(dim1=-2, dim2=-1, offset=1 - half)
        scores[hook.layer()] = stripe[..., 1:].mean((0, -1))

    with torch.no_grad():
        model.run_with_hooks(
            tokens,
            return_type=None,
            fwd_hooks=[(lambda name: name.endswith("hook_pattern"), hook)],
        )
    return scores.tolist()


def long_prompt(model, inputs):
    first = torch.zeros(model.cfg.n_layers, model.cfg.n_heads)

    def hook(pattern, hook):
        first[hook.layer()] = pattern[:, :, 1:, 0].mean((0, -1))

    with torch.no_grad():
        model.run_with_hooks(
            torch.tensor(inputs["long"]),
            return_type=None,
            fwd_hooks=[(lambda name: name.endswith("hook_pattern"), hook)],
        )
    return first.tolist()


def difference(logits, inputs):
    rows, last = range(len(inputs["answers"])), logits[:, -1]
    return (last[rows, inputs["answers"]] - last[rows, inputs["wrong"]]).mean()


def ablation(model, inputs):
    clean = torch.tensor(inputs["clean"])
    with torch.no_grad():
        full = difference(model(clean), inputs)
        effects = []
        for layer, head in heads(model):

            def without(z, hook, head=head):
                z[:, :, head] = 0
                return z

            name = f"blocks.{layer}.attn.hook_z"
            logits = model.run_with_hooks(clean, fwd_hooks=[(name, without)])
            effects.append((full - difference(logits, inputs)).item())
    return effects


def attribution_patching(model, inputs):
    names = [f"blocks.{layer}.attn.hook_z" for layer in range(model.cfg.n_layers)]
    corrupted, clean, slopes = {}, {}, {}

    def kept_in(values, name):
        return name, lambda z, hook: values.update({name: z.detach()})

    with torch.no_grad():
        model.run_with_hooks(
            torch.tensor(inputs["corrupted"]), fwd_hooks=[kept_in(corrupted, x) for x in names]
        )
    with model.hooks(
        fwd_hooks=[kept_in(clean, x) for x in names], bwd_hooks=[kept_in(slopes, x) for x in names]
    ):
        difference(model(torch.tensor(inputs["clean"])), inputs).backward()
    return [((clean[x] - corrupted[x]) * slopes[x]).sum((0, 1, 3)).tolist() for x in names]


def direct(model, inputs):
    with torch.no_grad():
        _, cache = model.run_with_cache(torch.tensor(inputs["text"]))
        stack = cache.stack_head_results(pos_slice=-1)
        return cache.logit_attrs(
            stack, inputs["answers"][0], inputs["wrong"][0], pos_slice=-1
        ).tolist()


def lens(model, inputs):
    with torch.no_grad():
        _, cache = model.run_with_cache(torch.tensor(inputs["text"]))
        stack = cache.accumulated_resid(apply_ln=True)
        logits = [(depth @ model.W_U + model.b_U)[0] for depth in stack]
    _ = [depth.topk(5) for depth in logits]
    return [depth[:, inputs["answers"][0]].tolist() for depth in logits]


def rollout(model, inputs):
    with torch.no_grad():
        _, cache = model.run_with_cache(
            torch.tensor(inputs["text"]), names_filter=lambda name: name.endswith("hook_pattern")
        )
    eye = torch.eye(len(inputs["text"][0]))
    total = eye
    for layer in range(model.cfg.n_layers):
        pattern = cache[f"blocks.{layer}.attn.hook_pattern"][0].mean(0)
        total = (pattern + eye) / 2 @ total
    return total[-1].tolist()


measure(
    load,
    {
        "induction": induction,
        "first token of a long prompt": long_prompt,
        "ablation": ablation,
        "attribution patching": attribution_patching,
        "direct attribution": direct,
        "lens": lens,
        "rollout": rollout,
    },
)
