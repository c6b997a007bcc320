"""What the explorer does not answer: other pages, other hosts, wrong bodies and queries."""

from __future__ import annotations

import asyncio

import pytest
from report.asking import PORT, TOKEN, asked
from together import over

from interp.report.explore.app import BODY

ROUTES = (
    "/",
    "/api/atlas",
    "/api/progress",
    "/api/pattern",
    "/api/tile",
    "/api/rules",
    "/api/explain",
    "/nothing",
)


@pytest.mark.parametrize("path", ROUTES)
def test_without_the_token_nothing_is_answered(client, path):
    for headers in ({"x-interp-token": ""}, {"x-interp-token": TOKEN[:-1]}):
        answer = client.get(path, headers=headers)
        assert answer.status == 403
        assert TOKEN not in answer.body.decode()
    for posted in ("/api/prompt", "/api/ablate", "/api/write"):
        assert client.post(posted, {}, headers={"x-interp-token": "ä"}).status == 403


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
    ("/api/write", {"prompt": 0, "heads": ["L1H3"]}, "prompt 0 was replaced"),
    ("/api/write", {"prompt": 1, "heads": [], "position": 1}, "unknown field position"),
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
        ({"position": 10**300}, "positions 0 to"),
        ({"position": 10**400}, "it has a whole number of 401 digits"),
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
    [
        ([10**4000], "it has a whole number of 4,001 digits"),
        ([10**300], "token"),
        ([5, 10**25], "token"),
        (["\ud800"], "lone surrogate"),
        ([[5]], "ids"),
    ],
)
def test_wrong_ids_are_a_400_with_the_reason(client, ids, says):
    found = client.post("/api/prompt", {"ids": ids})
    assert found.status == 400
    assert says in found.data["error"]
