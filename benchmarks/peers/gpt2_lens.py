"""A GPT-2 checkpoint in TransformerLens, and a run's input and output; used by the peers' scripts.

A script is called as `SCRIPT folder pairs.json out.json`. `pairs.json` has token ids of `clean` and
`corrupted` prompts of one length, and the ids `answers` and `wrong`, read at the last position. It
writes, by method, `nodes` and `edges` with scores under the names L0H1, mlp0, embed, logits, and
the seconds and passes over all pairs. It imports nothing of interp.
"""

import json
import sys
import time
from pathlib import Path


def given():
    """Return the folder, the pairs and the file to write."""
    folder, pairs, out = sys.argv[1:4]
    return folder, json.loads(Path(pairs).read_text()), Path(out)


def lens_model(folder):
    """Load the checkpoint as a HookedTransformer with unfolded weights."""
    import torch
    from transformer_lens import HookedTransformer, HookedTransformerConfig
    from transformer_lens.pretrained.weight_conversions import convert_gpt2_weights
    from transformers import GPT2LMHeadModel

    theirs = GPT2LMHeadModel.from_pretrained(folder).eval()
    c = theirs.config
    cfg = HookedTransformerConfig(
        n_layers=c.n_layer,
        d_model=c.n_embd,
        n_ctx=c.n_positions,
        d_head=c.n_embd // c.n_head,
        n_heads=c.n_head,
        d_mlp=c.n_inner or 4 * c.n_embd,
        d_vocab=c.vocab_size,
        act_fn="gelu_new",
        eps=c.layer_norm_epsilon,
        normalization_type="LN",
        device="cpu",
        use_attn_result=True,
        use_split_qkv_input=True,
        use_hook_mlp_in=True,
        default_prepend_bos=False,
    )
    model = HookedTransformer(cfg)
    state = convert_gpt2_weights(theirs, cfg)
    if "unembed.b_U" not in state:
        state["unembed.b_U"] = torch.zeros(c.vocab_size)
    model.load_state_dict(state, strict=False)
    ids = torch.arange(min(c.n_positions, c.vocab_size))[None]
    with torch.no_grad():
        error = (model(ids) - theirs(ids).logits).abs().max().item()
    if error > 1e-3:
        raise SystemExit(f"the converted model differs from the checkpoint by {error:.2g}")
    return model.eval()


def difference(logits, answers, wrong):
    """Return the mean logit difference of answer and wrong answer at the last position."""
    last = logits[:, -1]
    rows = range(len(last))
    return (last[rows, answers] - last[rows, wrong]).mean()


def own_name(name):
    """Return the name here of a node or reader called `a0.h1`, `m0`, `input`, `A0.1` or `MLP 0`."""
    name = name.replace("Resid Start", "embed").replace("Resid End", "logits")
    name = {"input": "embed"}.get(name, name)
    if name.startswith(("a", "A")) and name[1:2].isdigit():
        layer, _, rest = name[1:].partition(".")
        head = rest.lstrip("h")
        for mark in ("<q>", "<k>", "<v>", ".Q", ".K", ".V"):
            head = head.replace(mark, "." + mark.strip("<>.").lower())
        return f"L{layer}H{head}"
    if name.startswith("MLP"):
        return f"mlp{name.split()[1]}"
    return f"mlp{name[1:]}" if name[:1] == "m" and name[1:].isdigit() else name


class Found:
    """Scores by method, written at the end."""

    def __init__(self, out):
        self.out, self.rows, self.start = out, {}, time.perf_counter()

    def add(self, method, nodes=None, edges=None, forwards=0, backwards=0):
        """Add the scores of a method, with the seconds since the last one."""
        now = time.perf_counter()
        if nodes is None:
            nodes = {}
            for (writer, _), score in edges.items():
                nodes[writer] = nodes.get(writer, 0.0) + score
        listed = [[a, b, float(x)] for (a, b), x in (edges or {}).items()]
        self.rows[method] = {
            "nodes": {name: float(x) for name, x in nodes.items()},
            "edges": listed,
            "seconds": now - self.start,
            "forwards": forwards,
            "backwards": backwards,
        }
        self.out.write_text(json.dumps(self.rows))
        self.start = time.perf_counter()

    def fail(self, method, error):
        """Note why a method has no scores."""
        self.rows[method] = {"error": f"{type(error).__name__}: {error}"[:300]}
        self.out.write_text(json.dumps(self.rows))
        self.start = time.perf_counter()
