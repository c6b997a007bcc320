"""Models with one logit: their metric is the log odds of the answer."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import zoo
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

import interp
from interp.causal.log_odds import has_one_logit, log_odds
from interp.causal.task_file import make_task
from interp.circuits.tasks import make_contrast
from interp.core.errors import OptionError


@pytest.fixture(scope="module")
def one_logit_model():
    """A language model whose head was replaced by one that gives a single number."""
    torch.manual_seed(0)
    module = zoo.FAMILIES["llama"].build("eager")
    module.lm_head = nn.Linear(module.config.hidden_size, 1, bias=False)
    return interp.load(module, name="one logit")


def lines(model, n: int = 24) -> list[dict]:
    """Pairs whose answer is the label that the model gives the clean side more than the other."""
    rng, rows = np.random.default_rng(0), []
    for _ in range(n):
        a, b = (rng.integers(4, 60, 9).tolist() for _ in range(2))
        with torch.no_grad():
            more = float(model.run([a])[0, -1, 0]) > float(model.run([b])[0, -1, 0])
        rows.append({"prompt": a, "corrupted": b, "answer": int(more)})
    return rows


def write(path, rows) -> str:
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def test_a_model_that_does_the_task_is_not_said_to_fail(one_logit_model, tmp_path) -> None:
    rows = lines(one_logit_model)
    task = make_contrast(one_logit_model, write(tmp_path / "mine.jsonl", rows))
    assert task.task.unit == "logits"
    clean, corrupted = task.values(one_logit_model)
    for i in (0, 5):
        with torch.no_grad():
            logit = float(one_logit_model.run([rows[i]["prompt"]])[0, -1, 0])
        assert clean[i] == pytest.approx(logit if rows[i]["answer"] else -logit, abs=1e-5)
    assert (clean > corrupted).all()
    assert task.gap(one_logit_model)[0] > 0
    both = [row | {"wrong": 1 - row["answer"]} for row in rows]
    same = make_contrast(one_logit_model, write(tmp_path / "both.jsonl", both))
    np.testing.assert_array_equal(same.values(one_logit_model)[0], clean)


def test_what_such_a_model_cannot_be_asked(one_logit_model, tmp_path) -> None:
    rows = lines(one_logit_model, 6)
    for more, told in (
        ({"answer": 5}, "has one logit, which is read as the log odds of label 1 against label 0"),
        ({"answer": 1, "wrong": 1}, "the answer and the wrong answer are both 1"),
    ):
        with pytest.raises(OptionError, match=told):
            make_task(one_logit_model, write(tmp_path / "mine.jsonl", [row | more for row in rows]))


def test_models_with_a_vocabulary_are_asked_as_before(tmp_path) -> None:
    model = interp.load("planted:induction")
    rows = [{"prompt": [3, 4, 5], "corrupted": [4, 4, 5], "answer": 1}] * 6
    assert not has_one_logit(model, [[3, 4]])
    assert make_task(model, write(tmp_path / "mine.jsonl", rows)).unit == "probability"


def test_one_output_per_prompt_is_read_at_position_0() -> None:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        num_labels=1,
    )
    model = interp.load(BertForSequenceClassification(config).eval(), name="classifier")
    prompts, others = [[5, 6, 7], [8, 9, 10]], [[5, 6, 8], [8, 9, 11]]
    task = log_odds(model, prompts, [1, 0], corrupted=others)
    from interp.circuits.contrast import ContrastTask

    clean, _ = ContrastTask(task).values(model)
    with torch.no_grad():
        logits = model.run(prompts)[:, 0].double().numpy()
    np.testing.assert_allclose(clean, logits * [1, -1], atol=1e-6)
    from interp.causal.measures import custom

    last = custom(
        model,
        prompts,
        lambda x, i: x[0, 0],
        name="last",
        unit="logits",
        higher_is_better=True,
        corrupted=others,
    )
    with pytest.raises(OptionError, match=r"one output per prompt; read it with positions=\[0\]"):
        ContrastTask(last).values(model)
