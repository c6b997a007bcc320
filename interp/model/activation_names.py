"""Names of the activations that can be captured, with their meaning and shape."""

from __future__ import annotations

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
    "result": "each head's part of the attention output, without the bias [batch, query_pos, "
    "head, d_model]",
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
