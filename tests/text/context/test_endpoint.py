"""A model behind an endpoint: what its answer loses without sentences is what the model loses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import interp
from interp.core.errors import LoadError, OptionError, PromptError
from interp.text.context import (
    Endpoint,
    endpoint_faithfulness,
    endpoint_sources,
)
from interp.text.context.served import check_endpoint

SENTENCES = ["the red dog ran. ", "a blue cat sat. ", "Anna met Tom. "]


def completion(model: interp.Model, text: str) -> dict[str, Any]:
    """Return what a completions server says of a prompt that it echoes."""
    coded = model.tokenizer(text, return_offsets_mapping=True)
    ids, offsets = coded["input_ids"], coded["offset_mapping"]
    with torch.no_grad():
        log_p = model.run([ids])[0].double().log_softmax(-1)
    values = [None, *(float(log_p[i, t]) for i, t in enumerate(ids[1:]))]
    shown = [text[a:b] for a, b in offsets]
    return {
        "choices": [
            {
                "logprobs": {
                    "tokens": shown,
                    "text_offset": [a for a, _ in offsets],
                    "token_logprobs": values,
                }
            }
        ]
    }


@pytest.fixture(scope="module")
def reader() -> interp.Model:
    return interp.load("bundled:induction")


def test_what_is_lost_equals_the_models_own_loss(
    reader: interp.Model, served_at: Callable[..., str]
) -> None:
    where = Endpoint(served_at(lambda asked: completion(reader, asked["prompt"])), "served")
    found = endpoint_sources(where, SENTENCES, "a blue cat", " sat", n_ablations=24)

    def own(parts: list[str]) -> float:
        before = "".join(parts) + "a blue cat"
        ids = reader.tokenizer(before + " sat")["input_ids"]
        first = len(reader.tokenizer(before)["input_ids"])
        log_p = reader.run([ids])[0].double().log_softmax(-1).detach()
        return sum(float(log_p[i - 1, ids[i]]) for i in range(first, len(ids)))

    frame = found.to_pandas()
    alone = frame[frame.metric == "leave_one_out"].score.to_numpy()
    whole = own(SENTENCES)
    expected = [whole - own(SENTENCES[:i] + SENTENCES[i + 1 :]) for i in range(3)]
    np.testing.assert_allclose(alone, expected, atol=1e-5)
    assert alone.argmax() == 1  # the sentence with the same words
    fitted = frame[frame.metric == "ablations"]
    assert fitted.score.to_numpy().argmax() == 1
    assert np.isfinite(fitted["sem"].to_numpy(dtype=float)).all()
    assert found.facts["noise"] == 0
    assert found.facts["whole"] == pytest.approx(whole, abs=1e-5)
    again = endpoint_sources(where, SENTENCES, "a blue cat", " sat", n_ablations=24)
    assert again.equals(found)


def test_a_server_that_reads_no_context_gives_nothing(served_at: Callable[..., str]) -> None:
    def deaf(asked: dict) -> dict:
        text = asked["prompt"]
        made = {"tokens": list(text), "text_offset": [*range(len(text))]}
        made |= {"token_logprobs": [None] + [-1.5] * (len(text) - 1)}
        return {"choices": [{"logprobs": made}]}

    found = endpoint_sources(Endpoint(served_at(deaf), "x"), SENTENCES, "Q", " A", n_ablations=8)
    assert np.abs(found.to_pandas().score).max() < 1e-12


def lying(change: Callable[[dict], Any]) -> Callable[[dict], Any]:
    def reply(asked: dict) -> Any:
        text = asked["prompt"]
        made: dict[str, Any] = {
            "tokens": list(text),
            "text_offset": [*range(len(text))],
            "token_logprobs": [None] + [-1.0] * (len(text) - 1),
        }
        return {"choices": [{"logprobs": change(made)}]}

    return reply


def halved(x: dict) -> dict:
    """One place is missing."""
    return x | {"text_offset": x["text_offset"][1:]}


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (lambda asked: (401, "no key"), "answers 401: no key; a key is read from INTERP"),
        (lambda asked: (500, "<b>broken\n</b>"), "answers 500"),
        (lambda asked: (200, "hello"), "did not return JSON"),
        (lambda asked: {"choices": [{"text": "x"}]}, "must support echo and logprobs"),
        (lying(lambda x: x | {"tokens": ["?"] * len(x["tokens"])}), "says that the answer is"),
        (lying(lambda x: x | {"token_logprobs": [0.5] * len(x["tokens"])}), "gives 0.5 as the"),
        (lying(lambda x: x | {"text_offset": x["text_offset"][::-1]}), "do not cover"),
        (lying(halved), "must support echo and logprobs"),
    ],
    ids=["key", "broken", "text", "chat", "tokens", "positive", "places", "lengths"],
)
def test_servers_that_do_not_say_what_is_needed_are_refused(
    reply: Callable[[dict], Any], message: str, served_at: Callable[..., str]
) -> None:
    with pytest.raises(LoadError, match=message) as told:
        endpoint_sources(Endpoint(served_at(reply), "x"), SENTENCES, "Q", " A", n_ablations=0)
    assert "\n" not in str(told.value)


def test_a_server_that_answers_otherwise_each_time_is_refused(
    served_at: Callable[..., str],
) -> None:
    times = iter(range(99))
    reply = lying(lambda x: x | {"token_logprobs": [-1.0 - next(times)] * len(x["tokens"])})
    with pytest.raises(LoadError, match="two requests of the same text differ by 2 nats"):
        endpoint_sources(Endpoint(served_at(reply), "x"), SENTENCES, "Q", " A", n_ablations=0)
    with pytest.raises(LoadError, match="two requests of the same text differ by 2 nats"):
        endpoint_faithfulness(Endpoint(served_at(reply), "x"), SENTENCES, "Q", " A", [1, 2, 3])


def test_an_answer_that_begins_inside_a_token_is_refused(served_at: Callable[..., str]) -> None:
    def pairs(x: dict) -> dict:
        return {name: values[::2] for name, values in x.items()}

    where = Endpoint(served_at(lying(pairs)), "x")
    with pytest.raises(PromptError, match="a token reaches from the text into the answer"):
        where.log_probability("abc", "defg")


def test_wrong_calls_are_refused() -> None:
    nowhere = Endpoint("http://127.0.0.1:9/v1/completions", "x", timeout=2)
    with pytest.raises(LoadError, match="does not answer"):
        endpoint_sources(nowhere, SENTENCES, "Q", " A", n_ablations=0)
    with pytest.raises(LoadError, match="not an address of http"):
        Endpoint("file:///etc/passwd", "x").log_probability("a", "b")
    with pytest.raises(OptionError, match="at least two sentences"):
        endpoint_sources(nowhere, ["one"], "Q", " A")
    with pytest.raises(OptionError, match="at least 8 for a fit"):
        endpoint_sources(nowhere, SENTENCES, "Q", " A", n_ablations=3)


def test_removal_in_the_order_of_true_scores_costs_more_than_in_others(
    reader: interp.Model, served_at: Callable[..., str]
) -> None:
    where = Endpoint(served_at(lambda asked: completion(reader, asked["prompt"])), "served")
    given = (where, SENTENCES, "a blue cat", " sat")

    def own(kept: tuple[int, ...]) -> float:
        text = "".join(SENTENCES[i] for i in kept) + "a blue cat"
        return where.log_probability(text, " sat")

    found = endpoint_faithfulness(*given, [0.0, 2.0, 1.0], n_random=6).to_pandas()
    whole = own((0, 1, 2))
    expected = [whole - (own((0, 2)) + own((0,))) / 2, whole - (own((1,)) + own((1, 2))) / 2]
    np.testing.assert_allclose(found.score, expected, atol=1e-9)
    assert found.score[0] > found.null[0] + found.null_sem[0]  # more is lost
    assert found.score[1] < found.null[1] - found.null_sem[1]  # and less, where the source is kept
    turned = endpoint_faithfulness(*given, [0.0, -2.0, -1.0], n_random=6).to_pandas()
    assert turned.score[0] < found.score[0]
    for wrong in ([1.0, 2.0], [1.0, float("nan"), 2.0]):
        with pytest.raises(OptionError, match="one finite score for each of the 3 sentences"):
            endpoint_faithfulness(*given, wrong)
    with pytest.raises(OptionError, match="at least 2 orders"):
        endpoint_faithfulness(*given, [1.0, 2.0, 3.0], n_random=1)


def test_an_address_is_checked_for_what_it_allows(
    reader: interp.Model, served_at: Callable[..., str], run: Any, errors: Any
) -> None:
    url = served_at(lambda asked: completion(reader, asked["prompt"]))
    shown = run("check", url).stdout
    assert f"{url}: model served" in shown
    assert shown.count(" yes: ") == 2
    assert "heads, patterns, edits, gradients   no: " in shown
    assert run("check", url.removesuffix("/v1/completions")).stdout == shown
    assert ": model other of" not in run("check", f"{url}#other").stdout
    chat = served_at(lambda asked: {"choices": [{"text": "x"}]})
    code, lines = errors("check", chat)
    assert code == 1
    assert not any("yes" in line for line in lines)
    times = iter(range(99))
    reply = lying(lambda x: x | {"token_logprobs": [-1.0 - next(times)] * len(x["tokens"])})
    assert not check_endpoint(served_at(reply)).passed
    code, [line] = errors("score", url, "-m", "induction")
    assert code == 1
    assert f"`interp check {url}` prints what can be computed" in line
    with pytest.raises(LoadError, match="is an address, and a served model gives no heads"):
        interp.load(url)
