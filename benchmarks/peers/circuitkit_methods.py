"""Edge and node scores of CircuitKit: the EAP family, exact patching, RelP, EAP-GP and AtP."""

import torch
from circuitkit.backends.eap import attribute, attribute_node
from circuitkit.backends.eap.graph import Graph
from gpt2_lens import Found, given, lens_model, own_name
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

folder, pairs, out = given()
model = lens_model(folder)
for name in ("use_attn_result", "use_split_qkv_input", "use_hook_mlp_in"):
    setattr(model.cfg, name, True)
vocabulary = {f"t{i}": i for i in range(model.cfg.d_vocab)}  # prompts are given to it as texts
words = Tokenizer(models.WordLevel(vocabulary, unk_token="t0"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
words.post_processor = processors.TemplateProcessing(single="t0 $A", special_tokens=[("t0", 0)])
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=words,
    bos_token="t0",
    eos_token="t0",
    pad_token="t0",
    unk_token="t0",
    name_or_path="words",
    add_bos_token=True,
)
tokenizer.padding_side = "right"
model.set_tokenizer(tokenizer, default_padding_side="right")
sides = [
    [" ".join(f"t{i}" for i in ids[1:]) for ids in pairs[side]] for side in ("clean", "corrupted")
]
for side, texts in zip(("clean", "corrupted"), sides, strict=True):
    if (got := model.to_tokens(texts, prepend_bos=True).tolist()) != pairs[side]:
        raise SystemExit(f"tokens {got[0]} of {texts[0]!r} are not {pairs[side][0]}")
labels = torch.tensor([pairs["answers"], pairs["wrong"]]).T
loader = [(*sides, labels)]
n = len(labels)


def metric(logits, clean_logits, input_lengths, labels):
    last = logits[torch.arange(len(logits)), input_lengths - 1]
    rows = torch.arange(len(last))
    return -(last[rows, labels[:, 0]] - last[rows, labels[:, 1]]).mean()


found = Found(out)
steps = 5
heads = model.cfg.n_layers * model.cfg.n_heads
stages = 1 + 2 * model.cfg.n_layers
for method, passes in (
    ("EAP", 1),
    ("EAP-IG-inputs", steps),
    ("EAP-IG-activations", steps * stages),
    ("clean-corrupted", 2),
    ("exact", 0),
):
    try:
        graph = Graph.from_model(model)
        attribute.attribute(model, graph, loader, metric, method=method, ig_steps=steps, quiet=True)
        edges = {}
        for name, edge in graph.edges.items():
            a, _, b = name.partition("->")
            edges[own_name(a), own_name(b)] = float(edge.score)
        forwards = 2 + (passes or len(edges))
        found.add(method, edges=edges, forwards=forwards, backwards=passes)
    except Exception as error:
        found.fail(method, error)
for method, passes in (("relp", 1), ("eap-gp", 2 * steps), ("atp-gd", 1 + model.cfg.n_layers)):
    try:
        graph = Graph.from_model(model, node_scores=True)
        attribute_node.attribute_node(
            model, graph, loader, metric, method=method, ig_steps=steps, quiet=True
        )
        nodes = {
            own_name(name): float(node.score)
            for name, node in graph.nodes.items()
            if name != "logits"
        }
        found.add(method, nodes, forwards=1 + passes, backwards=passes)
    except Exception as error:
        found.fail(method, error)
