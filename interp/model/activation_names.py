"""Names of the activations that can be captured: meaning, shape, and the names other tools use."""

from __future__ import annotations

import re

from interp.core.errors import OptionError, UnknownName

HEAD_NAMES = {
    "q": "queries that enter the scores, after rotary and norms [batch, head, query_pos, d_head]",
    "k": "keys that enter the scores, after rotary and norms [batch, kv_head, key_pos, d_head]",
    "v": "values [batch, kv_head, key_pos, d_v]",
    "scores": "logits that enter the softmax [batch, head, query_pos, key_pos]",
    "pattern": "attention probabilities [batch, head, query_pos, key_pos]; of a map that is not a "
    "softmax, the absolute share |M| / sum |M|",
    "map": "matrix that multiplies the values: the pattern, or the signed map of a mixer [batch, "
    "head, query_pos, key_pos]",
    "z": "heads' outputs before the output projection [batch, head, query_pos, d_v]",
    "result": "what each head adds to the stream, a factor or norm behind the projection included "
    "(with the scale that it has in the run), without biases [batch, query_pos, head, d_model]",
}
STREAM_NAMES = {
    "resid_pre": "residual stream that enters the block [batch, pos, d_model]",
    "resid_mid": "residual stream between attention and MLP [batch, pos, d_model]",
    "resid_post": "residual stream that leaves the block [batch, pos, d_model]",
    "attn_out": "what attention adds to the stream, bias included [batch, pos, d_model]",
    "mlp_out": "what the MLP adds to the stream [batch, pos, d_model]",
}
SOFTMAX_NAMES = ("q", "k", "scores")  # maps that are not one softmax have none of these
NAMES = HEAD_NAMES | STREAM_NAMES

# Names of the same activation elsewhere, by source; those of nnsight are nnterp's accessors.
# Layouts differ: the others put positions before heads, and interp-engine joins the heads of `z`
# and `value`. q and k have no name there: those of the others are before rotary.
OTHER_NAMES: dict[str, dict[str, str]] = {
    "v": {"interp-engine": "value", "transformer-lens": "attn.hook_v"},
    "scores": {"interp-engine": "attn_scores", "transformer-lens": "attn.hook_attn_scores"},
    "pattern": {"interp-engine": "attn_probs", "transformer-lens": "attn.hook_pattern"},
    "z": {"interp-engine": "z", "transformer-lens": "attn.hook_z"},
    "result": {"transformer-lens": "attn.hook_result"},
    "resid_pre": {
        "interp-engine": "resid_pre",
        "transformer-lens": "hook_resid_pre",
        "nnsight": "layers_input",
    },
    "resid_mid": {"interp-engine": "resid_mid", "transformer-lens": "hook_resid_mid"},
    "resid_post": {
        "interp-engine": "resid_post",
        "transformer-lens": "hook_resid_post",
        "nnsight": "layers_output",
    },
    "attn_out": {
        "interp-engine": "attn_out",
        "transformer-lens": "hook_attn_out",
        "nnsight": "attentions_output",
    },
    "mlp_out": {
        "interp-engine": "mlp_out",
        "transformer-lens": "hook_mlp_out",
        "nnsight": "mlps_output",
    },
}
# A norm between a module and the stream (Gemma 2): what is added to the stream has another name, or
# none, and the name above is then the output of the module, which interp does not name.
_BEHIND_NORM = {
    "interp-engine": {"attn_out": "attn_out_post", "mlp_out": "mlp_out_post"},
    "nnsight": {"attn_out": None, "mlp_out": None},
    "transformer-lens": {"result": None},  # its hook_result is before the norm
}
_FORMS = {
    "interp-engine": "{name}.{layer}",
    "transformer-lens": "blocks.{layer}.{name}",
    "nnsight": "{name}[{layer}]",
}


def name_elsewhere(name: str, source: str, layer: int, *, output_norm: bool = False) -> str:
    """Return the name of an activation in another tool, such as "blocks.3.attn.hook_z"."""
    if name not in NAMES:
        raise UnknownName("activation", name, NAMES)
    names = _names(source, output_norm)
    if name not in names:
        raise OptionError(f"{source} has no name for {name}; it has names for {', '.join(names)}")
    return _FORMS[source].format(name=names[name], layer=layer)


def name_here(text: str, source: str, *, output_norm: bool = False) -> tuple[str, int]:
    """Return the activation and the layer that a name of another tool denotes."""
    names = _names(source, output_norm)
    for name, other in names.items():
        form = re.escape(_FORMS[source].format(name=other, layer="LAYER"))
        if match := re.fullmatch(form.replace("LAYER", r"(\d+)"), text):
            return name, int(match[1])
    known = ", ".join(_FORMS[source].format(name=other, layer="L") for other in names.values())
    raise OptionError(f"{source}: {text!r} is not an activation that interp names; known: {known}")


def _names(source: str, output_norm: bool) -> dict[str, str]:
    """Return a tool's names, by interp's."""
    if source not in _FORMS:
        raise UnknownName("source", source, _FORMS)
    names = {name: others.get(source) for name, others in OTHER_NAMES.items()}
    names |= _BEHIND_NORM.get(source, {}) if output_norm else {}
    return {name: other for name, other in names.items() if other is not None}
