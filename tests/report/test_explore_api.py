"""The API of the local server: who may ask, what is answered, what is refused and how."""

from __future__ import annotations

import asyncio
import base64
import threading
import zlib

import numpy as np
import pytest
import torch
from report.asking import PORT, TOKEN, Client
from together import over

import interp
from interp.causal.ablation import leave_one_out
from interp.causal.task import Task
from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.prompts import Prompts
from interp.heads.patterns import view
from interp.model.edits import mean, resample, uniform, zero
from interp.report.explore.app import BODY, application
from interp.report.explore.session import Session
from interp.report.explore.turns import NewerRequest, Turns

TEXT = "The cat sat on the mat. The cat sat on the"


@pytest.fixture(scope="module")
def model():
    return interp.load("bundled:induction")


@pytest.fixture(scope="module")
def served_session(model):
    return Session(model)


@pytest.fixture(scope="module")
def client(served_session):
    return Client(application(lambda token: f"<p>{token}</p>", served_session, TOKEN, PORT))


def asked(client, text=TEXT):
    answer = client.post("/api/prompt", {"text": text})
    assert answer.status == 200, answer.body
    return answer.data


def weights_of(item):
    planes = np.frombuffer(zlib.decompress(base64.b64decode(item["d"])), np.uint8)
    flat = np.ascontiguousarray(planes.reshape(item["s"], -1).T).view("<f4").reshape(-1)
    return flat.reshape(item["n"])


ROUTES = (
    "/", "/api/atlas", "/api/progress", "/api/pattern", "/api/tile", "/api/rules", "/api/explain",
    "/nothing",
)  # fmt: skip


@pytest.mark.parametrize("path", ROUTES)
def test_without_the_token_nothing_is_answered(client, path):
    for headers in ({"x-interp-token": ""}, {"x-interp-token": TOKEN[:-1]}):
        answer = client.get(path, headers=headers)
        assert answer.status == 403
        assert TOKEN not in answer.body.decode()
    for posted in ("/api/prompt", "/api/ablate"):
        assert client.post(posted, {}, headers={"x-interp-token": "ä"}).status == 403


def test_the_token_in_the_address_opens_the_page(client):
    answer = client.get("/", headers={"x-interp-token": ""}, token=TOKEN)
    assert answer.status == 200
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    assert client.get("/", headers={"x-interp-token": ""}, token="other").status == 403


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", f"evil.example:{PORT}", ""])
def test_another_host_is_refused_even_with_the_token(client, host):
    answer = client.get("/", headers={"host": host})
    assert answer.status == 403
    assert f"localhost:{PORT}" in answer.data["error"]
    assert client.get("/", headers={"host": f"localhost:{PORT}"}).status == 200


def test_no_route_takes_another_method(client):
    for method in ("PUT", "DELETE", "PATCH"):
        for path in ("/", "/api/prompt", "/api/tile"):
            assert asyncio.run(client.ask(method, path)).status in (404, 405)


def test_a_prompt_shows_every_head_and_the_next_token(client, model):
    found = asked(client)
    [stack] = found["stacks"]
    assert [head["name"] for head in stack["heads"]] == [str(head) for head in model.heads()]
    assert stack["picture_of_heads"].startswith("data:image/png;base64,")
    logits = model.run(TEXT).detach()[0, -1]
    top = found["predictions"]["tokens"][0]
    assert top["id"] == int(logits.argmax())
    assert top["before"]["logit"] == pytest.approx(float(logits.max()), abs=1e-5)
    assert top["before"]["probability"] == pytest.approx(float(logits.softmax(-1).max()), abs=1e-6)
    ids = model.tokenizer(TEXT)["input_ids"]
    assert len(found["tokens"]) == len(ids)
    assert asked(Client(client.app), TEXT)["prompt"] == found["prompt"] + 1


def test_patterns_are_those_of_the_model(client, model):
    found = asked(client)
    patterns = model.capture(TEXT, ["pattern"]).by_site("pattern")
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
            "mean-dataset", "A dog ran.\n\nThe sun is up.",
            lambda model, heads: mean(
                heads, over="dataset", reference=model.mean_z(["A dog ran.", "The sun is up."])
            ),
        ),
        (
            "resample", TEXT,
            lambda model, heads: resample(heads, model.capture(TEXT, ["z"]).z_by_site()),
        ),
    ],
)  # fmt: skip
def test_ablated_logits_are_those_of_the_edit(client, model, intervention, reference, edit):
    text = "The mat sat on the cat. The mat sat on the" if intervention == "resample" else TEXT
    found = asked(client, text)
    heads = ["L1H3", "L0H2"]
    given = {"prompt": found["prompt"], "heads": heads, "intervention": intervention,
             "reference": reference, "position": 9}  # fmt: skip
    answer = client.post("/api/ablate", given).data
    assert answer["intervention"].startswith(f"{intervention}(decoder L1H3, L0H2")
    plain = model.run(text).detach()[0, 9]
    changed = model.run(text, [edit(model, heads)]).detach()[0, 9]
    assert not torch.allclose(plain, changed, atol=1e-3)
    for one in answer["tokens"]:
        assert one["before"]["logit"] == pytest.approx(float(plain[one["id"]]), abs=1e-4)
        assert one["after"]["logit"] == pytest.approx(float(changed[one["id"]]), abs=1e-4)
        assert one["after"]["rank"] == 1 + int((changed > changed[one["id"]]).sum())
    p, q = plain.double().log_softmax(-1), changed.double().log_softmax(-1)
    assert answer["kl"] == pytest.approx(float((p.exp() * (p - q)).sum()), abs=1e-5)
    top = {int(i) for i in plain.topk(10).indices} | {int(i) for i in changed.topk(10).indices}
    assert {one["id"] for one in answer["tokens"]} == top


def test_every_head_can_have_an_intervention_of_its_own(client, model):
    given = {"prompt": asked(client, TEXT)["prompt"], "heads": ["L1H3", "L0H2", "L1H0"],
             "intervention": ["zero", "uniform-attention", "zero"]}  # fmt: skip
    answer = client.post("/api/ablate", given).data
    assert answer["intervention"].startswith("zero(decoder L1H3, L1H0); uniform-attention(")
    changed = model.run(TEXT, [zero(["L1H3", "L1H0"]), uniform(["L0H2"])]).detach()[0, -1]
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


def test_heads_are_listed_by_their_weight_on_a_pair(client, model):
    number = asked(client, TEXT)["prompt"]
    given = {"prompt": number, "head": "L1H3", "query": 9, "key": 4}
    listed = client.get("/api/heads", **given).data["heads"]
    weights = {str(h): float(w[9, 4]) for h, w in view(model, TEXT).stacks[0].weights.items()}
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


def test_patterns_of_an_ablation_are_those_under_the_edit(client, model):
    found = asked(client, TEXT)
    given = {"prompt": found["prompt"], "heads": ["L0H3"], "intervention": "zero"}
    answer = client.post("/api/ablate", given).data
    [picture] = answer["pictures"]
    assert picture != found["stacks"][0]["picture_of_heads"]
    with model.edited(zero(["L0H3"])):
        edited = view(model, TEXT).stacks[0].weights
    plain = view(model, TEXT).stacks[0].weights
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


def test_an_ablation_agrees_with_the_command(client, model):
    """The loss of the last token, from the server's logits and from leave-one-out."""
    ids = model.tokenizer(TEXT)["input_ids"]
    found = client.post("/api/prompt", {"ids": ids[:-1]}).data
    position, target = len(ids) - 2, ids[-1]

    task = Task(
        "last-token", Prompts((tuple(ids[:-1]),)), ((position,),), "nats", False,
        read_rows=lambda logits, rows, clean: -logits.log_softmax(-1)[:, target],
    )  # fmt: skip
    table = leave_one_out(model, task, kind="zero", null="none", heads=["L1H3"])
    given = {"prompt": found["prompt"], "heads": ["L1H3"], "intervention": "zero"}
    rows = client.post("/api/ablate", given).data["tokens"]
    [row] = [row for row in rows if row["id"] == target]
    change = np.log(row["before"]["probability"]) - np.log(row["after"]["probability"])
    assert float(table.to_pandas()["score"].iloc[0]) == pytest.approx(change, abs=1e-4)


BAD = [
    ("/api/prompt", {"text": ""}, "the text is empty"),
    ("/api/prompt", {"text": " \n"}, "the text is empty"),
    ("/api/prompt", {}, "exactly one of text and ids"),
    ("/api/prompt", {"text": "a", "ids": [1]}, "exactly one of text and ids"),
    ("/api/prompt", {"text": 3}, "text is '3'; it must be text"),
    ("/api/prompt", {"ids": []}, "at least one token id"),
    ("/api/prompt", {"ids": [True]}, "all whole numbers"),
    ("/api/prompt", {"ids": [999]}, "the token id 999"),
    ("/api/prompt", {"words": "a"}, "unknown field words"),
    ("/api/prompt", [], "must be a JSON object"),
    ("/api/prompt", b"{", "not JSON"),
    ("/api/prompt", b"\xff", "not JSON"),
    ("/api/prompt", b"[" * 100_000, "not JSON"),
    ("/api/ablate", {"prompt": 0, "heads": ["L1H3"]}, "prompt 0 was replaced"),
    ("/api/ablate", {"heads": ["L1H3"]}, "field prompt is missing"),
    ("/api/ablate", {"prompt": 1, "heads": "L1H3"}, "it must be a list"),
    ("/api/ablate", {"prompt": 1, "heads": [3]}, "list of names"),
]


@over(("path", "given", "says"), BAD)
def test_a_wrong_body_is_a_400_with_the_reason(client, path, given, says):
    asked(client)
    answer = client.post(path, given)
    assert answer.status == 400
    assert says in answer.data["error"]


@over(
    ("more", "says"),
    [
        ({"heads": ["L9H0"]}, "no head L9H0"),
        ({"heads": ["one"]}, "one"),
        ({"heads": ["L1H" + "3" * 5_000]}, "cannot read 'L1H333"),
        ({"heads": ["L1H3\ud800"]}, "heads holds a lone surrogate at character 4"),
        ({"intervention": "\ud800"}, "intervention holds a lone surrogate"),
        ({"intervention": "mean-dataset", "reference": "a\udfff"}, "reference holds a lone"),
        ({"position": 10**400}, "positions 0 to"),
        ({"heads": ["L1H3", "L1H3"]}, "named twice"),
        ({"heads": ["cross.L1H3"]}, "no stack 'cross'"),
        ({"intervention": "ablate"}, "unknown intervention"),
        ({"intervention": ["zero", "zero"]}, "2 interventions for 1 heads"),
        ({"intervention": [1]}, "a name, or a list of names"),
        ({"heads": ["L1H3", "L1H3"], "intervention": ["zero", "mean-batch"]}, "named twice"),
        ({"intervention": "mean-position"}, "changes nothing for one prompt"),
        ({"intervention": "mean-dataset"}, "needs reference prompts"),
        ({"intervention": "zero", "reference": "a"}, "takes no reference"),
        ({"intervention": "resample", "reference": "a"}, "as many as the prompt"),
        ({"position": 999}, "positions 0 to"),
    ],
)
def test_a_wrong_ablation_is_a_400_with_the_reason(client, more, says):
    given = {"prompt": asked(client)["prompt"], "heads": ["L1H3"]} | more
    answer = client.post("/api/ablate", given)
    assert answer.status == 400
    assert says in answer.data["error"]


@pytest.mark.parametrize(
    ("path", "query", "says"),
    [
        ("/api/pattern", {"head": "L1H3"}, "field prompt is missing"),
        ("/api/pattern", {"prompt": "-1", "head": "L1H3"}, "whole number from 0"),
        ("/api/pattern", {"prompt": "1" * 40, "head": "L1H3"}, "whole number from 0"),
        ("/api/pattern", {"head": "L1H30"}, "no head L1H30"),
        ("/api/pattern", {"head": "L1H" + "9" * 5_000}, "cannot read 'L1H999"),
        ("/api/pattern", {"head": "L1H3", "file": "x"}, "unknown field file"),
        ("/api/tile", {"head": "L1H3", "block": 1, "row": 0, "column": 0}, "this prompt is short"),
    ],
)
def test_a_wrong_query_is_a_400_with_the_reason(client, path, query, says):
    known = {"prompt": asked(client)["prompt"]} if "missing" not in says else {}
    answer = client.get(path, **(known | query))
    assert answer.status == 400
    assert says in answer.data["error"]


def test_a_body_above_the_limit_is_not_read(client):
    assert client.post("/api/prompt", b"x" * (BODY + 1)).status == 413


def test_hostile_text_and_lone_surrogates_come_back_as_text(client):
    found = asked(client, "</script><script>alert(1)</script>")
    assert "".join(found["tokens"]).replace("<s>", "").startswith("</script>")
    answer = client.post("/api/prompt", b'{"text": "a\\ud800b"}')
    assert answer.status == 400
    assert "lone surrogate at character 1" in answer.data["error"]


def test_a_folder_of_results_says_why_it_runs_nothing():
    client = Client(application(lambda token: "", None, TOKEN, PORT, {"version": 1}))
    assert client.get("/api/atlas").data == {"version": 1}
    answer = client.post("/api/prompt", {"text": "a"})
    assert answer.status == 400
    assert "hold no model" in answer.data["error"]


def test_without_results_there_is_no_atlas(client):
    assert client.get("/api/atlas").status == 400


def test_a_newer_request_replaces_an_older_one():
    turns, order = Turns(), []
    started, released = threading.Event(), threading.Event()

    def first():
        with turns.taken("prompt") as going_on:
            started.set()
            released.wait(5)
            with pytest.raises(NewerRequest):
                going_on()
            order.append("first")

    def second():
        with turns.taken("prompt"):
            order.append("second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert started.wait(5)
    threads[1].start()
    while turns._prompts < 2:
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


def test_a_model_that_reads_no_text_is_refused(model, monkeypatch):
    monkeypatch.setattr(type(model), "takes_text", False)
    with pytest.raises(OptionError, match="reads no text"):
        Session(model)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", f"https://127.0.0.1:{PORT}"])
def test_a_page_of_another_origin_is_refused_even_with_the_token(client, origin):
    for found in (
        client.get("/", headers={"origin": origin}),
        client.post("/api/prompt", {"text": "a"}, headers={"origin": origin}),
    ):
        assert found.status == 403
        assert found.data["kind"] == "Origin"
    own = client.get("/api/progress", headers={"origin": f"http://localhost:{PORT}"})
    assert own.status == 200


@pytest.mark.parametrize(
    ("ids", "says"),
    [([10**4000], "token"), ([5, 10**25], "token"), (["\ud800"], "lone surrogate"), ([[5]], "ids")],
)
def test_wrong_ids_are_a_400_with_the_reason(client, ids, says):
    found = client.post("/api/prompt", {"ids": ids})
    assert found.status == 400
    assert says in found.data["error"]
