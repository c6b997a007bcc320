"""DecoderLens against encoders that are really cut short, for every way an encoder ends."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import zoo

import interp
from interp.alignment import encode_pairs, made_sentence_pairs
from interp.core.errors import OptionError, PromptError
from interp.lens import decoder_lens

NORMS = {
    "bart": "",
    "t5": "final_layer_norm",
    "whisper": "layer_norm",
    "marian": "",
    "mbart": "layer_norm",
}


@pytest.mark.parametrize("name", NORMS)
def test_a_depth_is_the_model_with_an_encoder_of_that_many_layers(name, loaded) -> None:
    model = loaded(name)
    inputs = zoo.FAMILIES[name].inputs(padding="right")
    found = decoder_lens(model, inputs)
    assert found.norm == NORMS[name]
    assert found.residual < 1e-5
    assert found.depth.tolist() == ["embedding", "layer 0", "layer 1"]
    mask = inputs.get("decoder_attention_mask")
    for depth in range(3):
        cut = copy.deepcopy(model.module)
        encoder = cut.get_encoder()
        layers = encoder.block if name == "t5" else encoder.layers
        del layers[depth:]
        with torch.no_grad():
            logits = cut(**inputs, use_cache=False).logits[:, :-1].double()
        right = inputs["decoder_input_ids"][:, 1:]
        for row in range(len(right)):
            real = right.shape[1] if mask is None else int(mask[row].sum()) - 1
            own, ids = logits[row, :real], right[row, :real]
            loss = torch.nn.functional.cross_entropy(own, ids)
            assert found.per_prompt[depth, row] == pytest.approx(float(loss), rel=1e-4)
            rank = (own > own.gather(1, ids[:, None])).sum(1).double().mean()
            assert found.rank_per_prompt[depth, row] == pytest.approx(float(rank), abs=0.5 / real)


def test_the_learned_model_needs_its_last_encoder_layer() -> None:
    """On the embedding alone the decoder knows the words, but not the order."""
    model = interp.load("bundled:reorder")
    encoded = encode_pairs(model, made_sentence_pairs(24))
    found = decoder_lens(model, encoded.prompts, labels=encoded.labels)
    assert found.residual == 0.0
    embedding, first, last = found.to_pandas()["score"]
    assert embedding > first > 1
    assert last < 0.01
    assert found.rank_per_prompt[-1].max() == 0
    assert found.labels == found.top_tokens[-1]
    one = decoder_lens(model, encoded.prompts, labels=encoded.labels, batch_size=5)
    np.testing.assert_allclose(one.per_prompt, found.per_prompt, atol=1e-4)


def test_wrong_calls_of_the_lens(loaded) -> None:
    bart = loaded("bart")
    ids = torch.tensor([[9, 10, 2]])
    with pytest.raises(OptionError, match="no encoder beside a decoder"):
        decoder_lens(loaded("llama"), [[5, 6]])
    with pytest.raises(PromptError, match="lack decoder_input_ids"):
        decoder_lens(bart, {"input_ids": ids})
    with pytest.raises(PromptError, match="prompt 0 has one token"):
        decoder_lens(bart, {"input_ids": ids, "decoder_input_ids": ids[:, :1]})
    given = {"input_ids": ids, "decoder_input_ids": ids}
    for labels in ([], [[1, 2, 3, 4]]):
        with pytest.raises(PromptError, match="labels of prompt 0"):
            decoder_lens(bart, given, labels=labels)
