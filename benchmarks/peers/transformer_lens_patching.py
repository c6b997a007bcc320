"""Activation patching of heads and MLPs by `transformer_lens.patching`."""

import torch
from gpt2_lens import Found, difference, given, lens_model
from transformer_lens import patching

folder, pairs, out = given()
model = lens_model(folder)
clean, corrupted = torch.tensor(pairs["clean"]), torch.tensor(pairs["corrupted"])
found = Found(out)
with torch.no_grad():
    # corrupted values in the clean run, as everywhere in this benchmark
    _, cache = model.run_with_cache(corrupted)
    full = difference(model(clean), pairs["answers"], pairs["wrong"])

    def metric(logits):
        return difference(logits, pairs["answers"], pairs["wrong"])

    by_head = patching.get_act_patch_attn_head_out_all_pos(model, clean, cache, metric)

    nodes = {
        f"L{layer}H{head}": full - by_head[layer, head]
        for layer in range(model.cfg.n_layers)
        for head in range(model.cfg.n_heads)
    }
    for layer in range(model.cfg.n_layers):
        name = f"blocks.{layer}.hook_mlp_out"
        logits = model.run_with_hooks(clean, fwd_hooks=[(name, lambda x, hook: cache[hook.name])])
        nodes[f"mlp{layer}"] = full - metric(logits)
found.add("patching", nodes, forwards=2 + len(nodes))
