"""Attribution patching of heads and MLPs inside gim-explain's context of modified gradients."""

import torch
from gim.context import GIM
from gpt2_lens import Found, difference, given
from transformers import GPT2LMHeadModel

folder, pairs, out = given()
model = GPT2LMHeadModel.from_pretrained(folder, attn_implementation="sdpa").eval()
clean, corrupted = torch.tensor(pairs["clean"]), torch.tensor(pairs["corrupted"])
seen = {}


def keep(name):
    def before(module, args):
        seen[name] = args[0]
        if args[0].requires_grad:
            args[0].retain_grad()

    def after(module, args, output):
        seen[name] = output
        if output.requires_grad:
            output.retain_grad()

    return before if name[0] == "z" else after


for i, block in enumerate(model.transformer.h):
    block.attn.c_proj.register_forward_pre_hook(keep(f"z{i}"))
    block.mlp.register_forward_hook(keep(f"mlp{i}"))
found = Found(out)
with torch.no_grad():
    model(corrupted)
other = {name: x.detach() for name, x in seen.items()}
with GIM(model):
    difference(model(clean).logits, pairs["answers"], pairs["wrong"]).backward()
nodes = {}
for name, x in seen.items():
    score = (x.grad * (x.detach() - other[name])).sum((0, 1))
    if name[0] != "z":
        nodes[name] = score.sum()
        continue
    for head, part in enumerate(score.unflatten(0, (model.config.n_head, -1)).sum(1)):
        nodes[f"L{name[1:]}H{head}"] = part
found.add("GIM", nodes, forwards=2, backwards=1)
