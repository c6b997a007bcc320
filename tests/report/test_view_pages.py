"""Pages: whole without scripts, closed to the network, safe from what tokens say."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from report import reading
from zoo import FAMILIES

import interp
from interp.core.errors import OptionError, PromptError
from interp.draw.sprite import shrunk, thumbnails
from interp.heads.patterns import View, view
from interp.heads.patterns.coding import coarser
from interp.heads.patterns.stack import Stack, stack_summary
from interp.report import cached_activations

EVIL = "<script>alert(1)</script>"


def uniform(tokens, **options) -> View:
    n = len(tokens)
    pattern = np.tri(n) / np.arange(1, n + 1)[:, None]
    return View.of_patterns(np.stack([pattern, np.eye(n)])[None], tokens, **options)


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found, self.text, self.inside = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.inside = tag

    def handle_data(self, data):
        if self.inside not in ("script", "style"):
            self.text.append(data)


def tags(page: str) -> Tags:
    parser = Tags()
    parser.feed(page)
    return parser


def test_tokens_are_text_wherever_they_stand() -> None:
    page = uniform(
        ["a", EVIL, '"><img src=x onerror=alert(2)>', "</script>", "&lt;"],
        title=EVIL,
        provenance={"model_id": EVIL},
    ).html()
    read = tags(page)
    assert EVIL in "".join(read.text)
    scripts = [a for tag, a in read.found if tag == "script"]
    assert len(scripts) == page.count("<script")
    assert sum(not a for a in scripts) == 1  # ours; the others hold data and have a type
    assert not [a for tag, a in read.found for name in a if name.startswith("on")]
    assert reading.data_of(page)["stacks"][0]["queries"][3] == "</script>"


def test_nothing_runs_and_nothing_loads_but_what_the_page_brings() -> None:
    page = uniform(["a", "b"]).html()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        [own] = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    for tag, attributes in tags(page).found:
        assert "style" not in attributes, tag  # the policy would drop it
        for name in ("src", "href"):
            assert attributes.get(name, "data:").startswith("data:")


def test_without_scripts_there_are_pictures_and_tables() -> None:
    page = uniform(["<s>", "the", "cat"]).html()
    assert page.count("data:image/png") == 2  # the thumbnails, the scale
    text = " ".join("".join(tags(page).text).split())
    assert "L0H1" in text
    for cell in ("0.597", "0.611"):  # (ln 2 + ln 3) / 3, and 11/18 on the first key
        assert cell in text
    assert "0: <s>" in text
    assert "1 the" in text


def test_summaries_are_what_they_say() -> None:
    stack = uniform(["a", "b", "c"]).stacks[0]
    even, own = stack_summary(stack)
    assert even["entropy"] == pytest.approx((0 + np.log(2) + np.log(3)) / 3)
    assert even["first"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert even["itself"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert even["previous"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert (own["itself"], own["previous"], own["entropy"]) == (1.0, 0.0, 0.0)
    # the first query has one key to look at, so its 1.0 is no finding
    assert (even["query"], even["largest"]) == (1, 0.5)


def test_a_thumbnail_keeps_single_weights_that_an_average_would_lose() -> None:
    big = np.zeros((500, 500), np.float32)
    big[377, 123] = 1.0
    colours = [f"#{i:02x}{i:02x}{i:02x}" for i in range(255, 0, -8)]
    assert thumbnails([[big]], big.shape, colours) != thumbnails([[big * 0]], big.shape, colours)
    small = shrunk(big, 64)
    assert small.shape == (64, 64)
    assert [int(at) for at in np.argwhere(small == 1)[0]] == [377 * 64 // 500, 123 * 64 // 500]


def test_coarser_rows_keep_their_sum() -> None:
    rng = np.random.default_rng(0)
    pattern = rng.dirichlet(np.ones(23), 17)
    small = coarser(pattern, 4)
    assert small.shape == (5, 6)
    np.testing.assert_allclose(small.sum(1), 1)
    assert small[4, 5] == pytest.approx(pattern[16:, 20:].sum() / 1)


def test_the_pair_of_bert_begins_where_its_segment_does() -> None:
    class Pair:
        """A slow tokenizer of whole words, as BERT joins two texts."""

        all_special_ids = (1, 2)

        def __call__(self, a, b=None, add_special_tokens=True, verbose=True):
            first, second = ([5 + len(w) for w in t.split()] for t in (a, b or ""))
            if not add_special_tokens:
                return {"input_ids": first + second}
            kinds = [0] * (len(first) + 2) + [1] * (len(second) + 1)
            return {"input_ids": [1, *first, 2, *second, 2], "token_type_ids": kinds}

        def decode(self, ids):
            return f"w{ids[0]}"

    model = interp.load(FAMILIES["bert"].model(), tokenizer=Pair(), name="bert", check=False)
    found = view(model, "the cat", text_b="a dog barked")
    stack = found.stacks[0]
    assert stack.second == (4, 4)
    assert len(stack.queries) == 8
    given = {
        "input_ids": torch.tensor([[1, 8, 8, 2, 6, 8, 11, 2]]),
        "token_type_ids": torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1]]),
    }
    own = model.capture(given)["pattern", 1][0]
    np.testing.assert_array_equal(found.pattern("L1H2"), own[2].numpy())
    alone = model.capture({"input_ids": given["input_ids"]})["pattern", 1][0]
    assert np.abs(found.pattern("L1H2") - alone[2].numpy()).max() > 1e-4  # segments were read
    assert reading.data_of(found.html())["stacks"][0]["second"] == [4, 4]


def test_a_pair_of_a_fast_tokenizer_begins_where_the_tokenizer_says(bundled_induction) -> None:
    stack = view(bundled_induction, "the cat", text_b="she said").stacks[0]
    first, _ = stack.second
    assert "".join(stack.queries[first:]).strip() == "she said"
    assert "".join(stack.queries[:first]).endswith("the cat")


def test_encoder_decoders_show_three_stacks_with_their_own_tokens() -> None:
    class Words:
        def __call__(self, text=None, text_target=None, **_):
            return {"input_ids": [4 + len(w) for w in (text or text_target).split()] + [1]}

        def decode(self, ids):
            return f"w{ids[0]}"

    model = interp.load(FAMILIES["t5"].model(), tokenizer=Words(), name="t5", check=False)
    found = view(model, "the cat sat down", text_b="un chat")
    shapes = {s.name: (len(s.queries), len(s.keys)) for s in found.stacks}
    assert shapes == {"encoder": (5, 5), "decoder": (3, 3), "cross": (3, 5)}
    start = model.config.decoder_start_token_id
    assert found.stack("decoder").queries == (f"w{start}", "w6", "w8")
    assert found.stack("cross").keys == ("w7", "w7", "w7", "w8", "w1")
    ids = {
        "input_ids": torch.tensor([[7, 7, 7, 8, 1]]),
        "decoder_input_ids": torch.tensor([[start, 6, 8]]),
    }
    own = model.capture(ids, stack="cross")["pattern", 0, "cross"][0, 1]
    np.testing.assert_array_equal(found.pattern("L0H1", "cross"), own.numpy())
    alone = view(model, "the cat", stack="encoder")
    assert len(alone.stacks) == 1
    assert "the decoder: it read the text of the encoder" in alone.html()
    assert "the decoder: it read" not in found.html()


def test_an_image_lies_under_the_attention_of_its_patches() -> None:
    zoo = FAMILIES["vit"]
    model = interp.load(zoo.model(), name="vit", check=False)
    pixels = zoo.inputs(batch=1)["pixel_values"]
    found = view(model, {"pixel_values": pixels})
    [stack] = found.stacks
    size = model.config.patch_size
    side = pixels.shape[-1] // size
    assert stack.picture.grid == (side, side)
    assert stack.picture.skip == 1
    assert stack.queries[:2] == ("[0]", "0,0")
    low, high = pixels.min(), pixels.max()
    want = torch.round((pixels[0] - low) / (high - low) * 255).permute(1, 2, 0).numpy()
    np.testing.assert_array_equal(stack.picture.pixels, want.astype(np.uint8))
    page = found.html()
    assert reading.data_of(page)["stacks"][0]["picture"]["skip"] == 1
    assert 'figure class="picture"' in page
    attentions = model.module(pixel_values=pixels, output_attentions=True).attentions
    again = View.over_image(attentions, stack.picture.pixels, (side, side))
    assert again.stacks[0].picture.skip == 1
    for head in stack.weights:
        np.testing.assert_allclose(again.pattern(head), found.pattern(head), atol=1e-6)
    with pytest.raises(OptionError, match="fewer than 9 x 9 patches"):
        View.over_image(attentions, stack.picture.pixels, (9, 9))


def test_edits_in_force_are_named_on_the_page(bundled_induction) -> None:
    with bundled_induction.edited(interp.model.uniform([(1, 0)])):
        page = view(bundled_induction, "the cat").html()
    assert "The model ran under edits: uniform" in page
    assert "under edits" not in view(bundled_induction, "the cat").html()


def test_windows_of_an_image_are_refused() -> None:
    zoo = FAMILIES["swin"]
    model = interp.load(zoo.model(), name="swin", check=False)
    with pytest.raises(OptionError, match="windows"):
        view(model, zoo.inputs(batch=1))


@pytest.mark.parametrize(
    ("text", "options", "error", "says"),
    [
        ("  ", {}, PromptError, "empty"),
        ("a b", {"heads": ["L9H9"]}, OptionError, "no head L9H9; it has L0H0 to L1H7"),
        ("a b", {"stack": "cross"}, OptionError, "no stack 'cross'"),
        ("a b", {"text_b": " "}, PromptError, "pair"),
        (["a", "b"], {}, OptionError, "one at a time"),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_line(
    bundled_induction, text, options, error, says
) -> None:
    with pytest.raises(error, match=says) as caught:
        view(bundled_induction, text, **options)
    assert "\n" not in str(caught.value)


def test_a_text_beyond_the_models_positions_is_refused() -> None:
    model = interp.load(FAMILIES["gpt2"].model(), name="gpt2", check=False)
    assert model.limit is not None
    with pytest.raises(PromptError, match=f"positions for {model.limit}"):
        view(model, [[5] * (model.limit + 1)])


def test_patterns_that_do_not_fit_their_tokens_are_refused() -> None:
    with pytest.raises(OptionError, match="2 query and 2 key tokens"):
        View.of_patterns(np.full((1, 1, 3, 3), 1 / 3), ["a", "b"])
    with pytest.raises(OptionError, match="one text"):
        View.of_patterns(np.full((1, 2, 1, 3, 3), 1 / 3), ["a", "b", "c"])
    with pytest.raises(OptionError, match="no heads"):
        Stack("x", {}, ("a",), ("a",))


def test_a_notebook_shows_a_view_and_a_cache_in_frames_of_their_own(
    bundled_induction, monkeypatch
) -> None:
    found = view(bundled_induction, "the cat " + EVIL)
    html = found._repr_html_()
    (tag, attributes), *table = tags(html).found
    assert [name for name, _ in table if name in ("iframe", "script")] == []
    assert (tag, attributes["sandbox"]) == ("iframe", "allow-scripts")
    assert attributes["srcdoc"].startswith("<!doctype html>")
    cache = bundled_induction.capture("the cat", ["pattern", "z"])
    own = cache._repr_html_()
    assert "<iframe" in own
    assert "<td>z</td>" in own
    assert "<iframe" not in bundled_induction.capture("the cat", ["z"])._repr_html_()
    monkeypatch.setattr(cached_activations, "WEIGHTS", 100)
    assert "<iframe" not in cache._repr_html_()
    assert "more than 100 weights" in cache._repr_html_()
    shown = cache.view(["<s>", *"the cat"][: cache["pattern", 0].shape[-1]])
    np.testing.assert_array_equal(shown.pattern("L1H3"), cache["pattern", 1][0, 3].numpy())


def test_figures_and_rows_hold_the_same_weights(bundled_induction, tmp_path) -> None:
    found = view(bundled_induction, "the cat and the cat", heads=["L1H0"])
    pattern = found.pattern("L1H0")
    figure = found.plot()
    np.testing.assert_array_equal(figure.data[0].z, pattern)
    rows = found.weights_to_pandas("L1H0")
    assert rows["weight"].sum() == pytest.approx(pattern.sum(), rel=1e-6)
    assert len(rows) == (pattern > 0).sum()
    found.save_html(tmp_path / "a.html")
    found.save_html(tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    with pytest.raises(OptionError, match=r"a\.svg ends in \.svg, but the output is a page; give"):
        found.save_html(tmp_path / "a.svg")
    assert not (tmp_path / "a.svg").exists()
