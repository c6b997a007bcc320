"""W_E and W_U are what lies between tokens and the first stream, the last stream and logits."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
import zoo
from heads.weights.families import NO_VOCABULARY, READ, READING_TOKENS, along, single_tokens
from heads.weights.perturbed import perturb
from together import over
from torch import Tensor

import interp
from interp.core.errors import UnreadableAttention
from interp.model.locate.find_layout import layouts
from interp.model.locate.weights import embeddings


@pytest.mark.slow
@over("name", [n for n in READ if n not in NO_VOCABULARY])
def test_unembedding_makes_the_logits_of_the_last_stream(name):
    family = zoo.FAMILIES[name]
    module = perturb(family.build(family.attentions[0]))
    module.config.final_logit_softcapping = None
    _without_biases(module)
    model = interp.load(module, name=name)
    with torch.no_grad():
        stack = model.stacks[-1] if "decoder" not in model.stacks else "decoder"
        block = _last_block(model, stack)
        with _outputs(model, block) as given:
            logits = model.run(single_tokens(name)).flatten(0, 1)
    stream = given[0].reshape(len(logits), -1)
    got = stream @ embeddings(model).W_U
    assert (along(got, logits - logits.mean(-1, keepdim=True)) > 0).all()


@pytest.mark.slow
@over("name", READING_TOKENS)
def test_embedding_makes_the_first_stream(name):
    family = zoo.FAMILIES[name]
    module = perturb(family.build(family.attentions[0]))
    _without_biases(module)
    model = interp.load(module, name=name)
    vocabulary = layouts(model).vocabulary
    for stream, entering in vocabulary.entering.items():
        assert not isinstance(entering, str), entering
        with torch.no_grad():
            for m_name, m in module.named_modules():
                table = isinstance(m, torch.nn.Embedding) and m_name != entering.table
                if table and m.weight is not module.get_submodule(entering.table).weight:
                    m.weight.zero_()  # positions and types
            for step in entering.steps:
                if step.kind == "matrix":
                    module.get_submodule(step.module).bias.zero_()
            site = min((s for s in model.sites if s.stack == stream), key=lambda s: s.layer)
            with _outputs(model, _first_block(site), before=True) as given:
                inputs = single_tokens(name)
                model.run(inputs)
        ids = inputs["input_ids"]
        if stream == "decoder":
            ids = inputs.get("decoder_input_ids", ids)
        x = given[0].reshape(len(ids), -1)
        expected = embeddings(model).W_E(stream)[ids[:, 0]]
        if any(step.kind == "norm" for step in entering.steps):
            assert (along(expected, x) > 0).all()
        else:  # positions that are computed are the same for all
            torch.testing.assert_close(
                x - x[:1], expected - expected[:1], rtol=1e-5, atol=1e-5 * float(x.abs().max())
            )


def _without_biases(module) -> None:
    with torch.no_grad():
        for m in module.modules():
            norm = "norm" in type(m).__name__.lower()
            if getattr(m, "bias", None) is not None and (norm or m.bias.shape[0] == 64):
                m.bias.zero_()
        for name, x in module.named_parameters():
            if name.endswith("final_logits_bias"):
                x.zero_()


def _first_block(site) -> str:
    parent = site.streams["resid_pre"].module.rpartition(".")[0]
    return f"{parent}.0"


def _last_block(model, stack: str) -> str:
    site = max((s for s in model.sites if s.stack == stack), key=lambda s: s.layer)
    parent = site.streams["resid_pre"].module.rpartition(".")[0]
    return f"{parent}.{len(model.module.get_submodule(parent)) - 1}"


@contextmanager
def _outputs(model, name: str, before: bool = False):
    kept: list[Tensor] = []

    def keep(module, args, kwargs, out):
        x = (args[0] if args else kwargs["hidden_states"]) if before else out
        kept.append((x if isinstance(x, Tensor) else x[0]).detach().clone())

    handle = model.module.get_submodule(name).register_forward_hook(keep, with_kwargs=True)
    try:
        yield kept
    finally:
        handle.remove()


def test_a_position_table_that_is_given_the_ids_is_no_embedding():
    """Whisper's counts them: its decoder begins with the embedding all the same."""
    module = zoo.FAMILIES["whisper"].build()
    model = interp.load(module, name="whisper")
    table = module.model.decoder.embed_tokens.weight
    torch.testing.assert_close(embeddings(model).W_E("decoder"), table.detach())
    with pytest.raises(UnreadableAttention, match="encoder stream is not a linear function"):
        embeddings(model).W_E("encoder")
