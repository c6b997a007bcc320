"""The API of the local server: who may ask, what is answered, what is refused and how."""

from __future__ import annotations

import base64
import threading
import zlib

import numpy as np
import pytest
import torch
from report.asking import PORT, TEXT, TOKEN, Client, asked

from interp.causal.ablation import leave_one_out
from interp.causal.task import Task
from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.prompts import Prompts
from interp.heads.patterns import view
from interp.model.edits import mean, resample, zero
from interp.model.pattern_edits import uniform
from interp.report.explore.app import application
from interp.report.explore.requests import NewerRequest, Turns
from interp.report.explore.session import Session


def weights_of(item):
    planes = np.frombuffer(zlib.decompress(base64.b64decode(item["d"])), np.uint8)
    flat = np.ascontiguousarray(planes.reshape(item["s"], -1).T).view("<f4").reshape(-1)
    return flat.reshape(item["n"])


def test_the_token_in_the_address_opens_the_page(client):
    answer = client.get("/", headers={"x-interp-token": ""}, token=TOKEN)
    assert answer.status == 200
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    assert client.get("/", headers={"x-interp-token": ""}, token="other").status == 403


def test_a_prompt_shows_every_head_and_the_next_token(client, bundled_induction):
    found = asked(client)
    [stack] = found["stacks"]
    assert [head["name"] for head in stack["heads"]] == [
        str(head) for head in bundled_induction.heads()
    ]
    assert stack["picture_of_heads"].startswith("data:image/png;base64,")
    logits = bundled_induction.run(TEXT).detach()[0, -1]
    top = found["predictions"]["tokens"][0]
    assert top["id"] == int(logits.argmax())
    assert top["before"]["logit"] == pytest.approx(float(logits.max()), abs=1e-5)
    assert top["before"]["probability"] == pytest.approx(float(logits.softmax(-1).max()), abs=1e-6)
    ids = bundled_induction.tokenizer(TEXT)["input_ids"]
    assert len(found["tokens"]) == len(ids)
    assert asked(Client(client.app), TEXT)["prompt"] == found["prompt"] + 1


def test_patterns_are_those_of_the_model(client, bundled_induction):
    found = asked(client)
    patterns = bundled_induction.capture(TEXT, ["pattern"]).by_site("pattern")
    for name, layer, head in (("L0H0", 0, 0), ("decoder.L1H3", 1, 3)):
        item = client.get("/api/pattern", prompt=found["prompt"], head=name).data
        expected = patterns["decoder", layer][0, head]
        torch.testing.assert_close(torch.tensor(weights_of(item["w"])), expected)
        assert item["terms"]["scale"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("intervention", "reference", "edit"),
    [
        ("zero", None, lambda model, heads: zero(heads)),
        ("mean-batch", None, lambda model, heads: mean(heads)),
        ("uniform-attention", None, lambda model, heads: uniform(heads)),
        (
            "mean-dataset",
            "A dog ran.\n\nThe sun is up.",
            lambda model, heads: mean(
                heads, over="dataset", reference=model.mean_z(["A dog ran.", "The sun is up."])
            ),
        ),
        (
            "resample",
            TEXT,
            lambda model, heads: resample(heads, model.capture(TEXT, ["z"]).z_by_site()),
        ),
    ],
)
def test_ablated_logits_are_those_of_the_edit(
    client, bundled_induction, intervention, reference, edit
):
    text = "The mat sat on the cat. The mat sat on the" if intervention == "resample" else TEXT
    found = asked(client, text)
    heads = ["L1H3", "L0H2"]
    given = {
        "prompt": found["prompt"],
        "heads": heads,
        "intervention": intervention,
        "reference": reference,
        "position": 9,
    }
    answer = client.post("/api/ablate", given).data
    assert answer["intervention"].startswith(f"{intervention}(decoder L1H3, L0H2")
    plain = bundled_induction.run(text).detach()[0, 9]
    changed = bundled_induction.run(text, [edit(bundled_induction, heads)]).detach()[0, 9]
    assert not torch.allclose(plain, changed, atol=1e-3)
    for one in answer["tokens"]:
        assert one["before"]["logit"] == pytest.approx(float(plain[one["id"]]), abs=1e-4)
        assert one["after"]["logit"] == pytest.approx(float(changed[one["id"]]), abs=1e-4)
        assert one["after"]["rank"] == 1 + int((changed > changed[one["id"]]).sum())
    p, q = plain.double().log_softmax(-1), changed.double().log_softmax(-1)
    assert answer["kl"] == pytest.approx(float((p.exp() * (p - q)).sum()), abs=1e-5)
    top = {int(i) for i in plain.topk(10).indices} | {int(i) for i in changed.topk(10).indices}
    assert {one["id"] for one in answer["tokens"]} == top


def test_every_head_can_have_an_intervention_of_its_own(client, bundled_induction):
    given = {
        "prompt": asked(client, TEXT)["prompt"],
        "heads": ["L1H3", "L0H2", "L1H0"],
        "intervention": ["zero", "uniform-attention", "zero"],
    }
    answer = client.post("/api/ablate", given).data
    assert answer["intervention"].startswith("zero(decoder L1H3, L1H0); uniform-attention(")
    changed = bundled_induction.run(TEXT, [zero(["L1H3", "L1H0"]), uniform(["L0H2"])]).detach()[
        0, -1
    ]
    for one in answer["tokens"]:
        assert one["after"]["logit"] == pytest.approx(float(changed[one["id"]]), abs=1e-4)
    mixed = given | {"intervention": ["zero", "mean-dataset", "zero"], "reference": "A dog ran."}
    assert "mean-dataset(" in client.post("/api/ablate", mixed).data["intervention"]


def test_the_change_is_said_with_its_ranks(client):
    given = {"prompt": asked(client, TEXT)["prompt"], "heads": ["L0H3", "L0H2", "L1H3"]}
    answer = client.post("/api/ablate", given).data
    first, last = answer["tokens"][0], min(answer["tokens"], key=lambda x: x["after"]["rank"])
    a, b = (first[side]["probability"] for side in ("before", "after"))
    assert b < a
    token, then = (one["token"].replace("\n", "⏎") for one in (first, last))
    assert answer["said"] == (
        f"The probability of “{token}” falls from {100 * a:.1f} % to {100 * b:.1f} %, from rank 1 "
        f"to {first['after']['rank']}; “{then}” becomes the likeliest."
    )
    assert client.post("/api/ablate", given | {"heads": []}).data["said"] == ""


@pytest.mark.parametrize("kind", ["zero", "mean-batch", "uniform-attention"])
def test_continuations_are_those_of_the_model_and_of_the_edit(client, bundled_induction, kind):
    number, heads = asked(client, TEXT)["prompt"], ["L0H3", "L1H0"]
    given = {"prompt": number, "heads": heads, "intervention": kind}
    answer = client.post("/api/write", given).data
    edit = {"zero": zero, "mean-batch": mean, "uniform-attention": uniform}[kind](heads)
    cached = {} if kind != "mean-batch" else {"use_cache": False}
    plain = bundled_induction.generate(TEXT, 20)
    changed = bundled_induction.generate(TEXT, 20, edits=[edit], **cached)
    assert (answer["before"], answer["after"]) == (plain.text, changed.text)
    assert answer["before"][: answer["shared"]] == answer["after"][: answer["shared"]]
    position = int((plain.ids != changed.ids).nonzero()[0, 1])
    assert f"at position {position} “" in answer["said"]
    alone = client.post("/api/write", given | {"heads": []}).data
    assert (alone["before"], alone["after"], alone["said"]) == (plain.text, None, "")


def test_heads_are_listed_by_their_weight_on_a_pair(client, bundled_induction):
    number = asked(client, TEXT)["prompt"]
    given = {"prompt": number, "head": "L1H3", "query": 9, "key": 4}
    listed = client.get("/api/heads", **given).data["heads"]
    weights = {
        str(h): float(w[9, 4]) for h, w in view(bundled_induction, TEXT).stacks[0].weights.items()
    }
    assert [name for name, _ in listed] == sorted(weights, key=lambda h: -weights[h])[:8]
    assert dict(listed) == pytest.approx({name: weights[name] for name, _ in listed}, abs=1e-6)
    refused = client.get("/api/heads", **given | {"key": 999})
    assert refused.status == 400
    assert "keys 0 to" in refused.data["error"]


def test_a_prompt_comes_with_its_text_in_pieces(client):
    found = asked(client, TEXT)
    [one] = found["texts"]
    assert "".join(text for _, text, _ in one["pieces"]).replace("<s>", "").strip() == TEXT
    assert found["stacks"][0]["reading"] == [0, 0]


def test_patterns_of_an_ablation_are_those_under_the_edit(client, bundled_induction):
    found = asked(client, TEXT)
    given = {"prompt": found["prompt"], "heads": ["L0H3"], "intervention": "zero"}
    answer = client.post("/api/ablate", given).data
    [picture] = answer["pictures"]
    assert picture != found["stacks"][0]["picture_of_heads"]
    with bundled_induction.edited(zero(["L0H3"])):
        edited = view(bundled_induction, TEXT).stacks[0].weights
    plain = view(bundled_induction, TEXT).stacks[0].weights
    for name in ("L0H2", "L1H7"):
        about = {"prompt": found["prompt"], "head": name}
        now = client.get("/api/pattern", **about, after=answer["after"]).data
        before = client.get("/api/pattern", **about).data
        assert (now["w"] == before["w"]) == (name == "L0H2")  # only later layers see the edit
        assert np.allclose(weights_of(now["w"]), edited[Head.parse(name)], atol=1e-6)
    assert np.abs(edited[Head(1, 7)] - plain[Head(1, 7)]).max() > 0.1
    # bringing the head back leaves no ablation to ask for
    back = client.post("/api/ablate", given | {"heads": []}).data
    assert "pictures" not in back
    gone = client.get("/api/pattern", **about, after=answer["after"])
    assert gone.status == 400
    assert "was replaced by another one" in gone.data["error"]


def test_an_ablation_agrees_with_the_command(client, bundled_induction):
    """The loss of the last token, from the server's logits and from leave-one-out."""
    ids = bundled_induction.tokenizer(TEXT)["input_ids"]
    found = client.post("/api/prompt", {"ids": ids[:-1]}).data
    position, target = len(ids) - 2, ids[-1]

    task = Task(
        "last-token",
        Prompts((tuple(ids[:-1]),)),
        ((position,),),
        "nats",
        False,
        read_rows=lambda logits, rows, clean: -logits.log_softmax(-1)[:, target],
    )
    table = leave_one_out(bundled_induction, task, kind="zero", null="none", heads=["L1H3"])
    given = {"prompt": found["prompt"], "heads": ["L1H3"], "intervention": "zero"}
    rows = client.post("/api/ablate", given).data["tokens"]
    [row] = [row for row in rows if row["id"] == target]
    change = np.log(row["before"]["probability"]) - np.log(row["after"]["probability"])
    assert float(table.to_pandas()["score"].iloc[0]) == pytest.approx(change, abs=1e-4)


def test_a_folder_of_results_says_why_it_runs_nothing():
    client = Client(application(lambda token: "", None, TOKEN, PORT, {"version": 1}))
    assert client.get("/api/atlas").data == {"version": 1}
    answer = client.post("/api/prompt", {"text": "a"})
    assert answer.status == 400
    assert "hold no model" in answer.data["error"]


def test_without_results_there_is_no_atlas(client):
    assert client.get("/api/atlas").status == 400


@pytest.mark.parametrize(
    ("older", "newer"), [("prompt", "prompt"), ("write", "ablate"), ("write", "write")]
)
def test_a_newer_request_replaces_an_older_one(older, newer):
    turns, order = Turns(), []
    started, released = threading.Event(), threading.Event()

    def first():
        with turns.taken(older) as going_on:
            started.set()
            released.wait(5)
            with pytest.raises(NewerRequest):
                going_on()
            order.append("first")

    def second():
        with turns.taken(newer):
            order.append("second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert started.wait(5)
    before = turns._prompts + turns._newest[newer]
    threads[1].start()
    while turns._prompts + turns._newest[newer] == before:
        threads[1].join(0.001)
    released.set()
    for thread in threads:
        thread.join(5)
    assert order == ["first", "second"]


def test_tiles_of_an_earlier_view_are_replaced_and_others_are_not():
    turns = Turns()
    with turns.taken("tile", 5), turns._numbers:
        pass
    with pytest.raises(NewerRequest), turns.taken("tile", 4):
        pass
    for turn in (5, None, 6):
        with turns.taken("tile", turn):
            pass
    turns.stop()
    with pytest.raises(NewerRequest, match="stops"), turns.taken("ablate"):
        pass


def test_a_replaced_request_is_a_409(served_session, client, monkeypatch):
    def replaced(*args):
        raise NewerRequest("a newer request replaced this one")

    monkeypatch.setattr(served_session, "prompt", replaced)
    answer = client.post("/api/prompt", {"text": "a"})
    assert answer.status == 409
    assert answer.data["kind"] == "NewerRequest"


def test_a_model_that_reads_no_text_is_refused(bundled_induction, monkeypatch):
    monkeypatch.setattr(type(bundled_induction), "takes_text", False)
    with pytest.raises(OptionError, match="reads no text"):
        Session(bundled_induction)
