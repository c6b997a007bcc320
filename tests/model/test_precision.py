"""Other types than float32: what rounds more finely or more coarsely than the code expects."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import zoo
from together import over

import interp
from interp.core.errors import CheckError
from interp.model.calls.sites import Where
from interp.model.check import check_model

READ = [f for f in zoo.FAMILIES.values() if "refused" not in f.features]
EAGER = ("llama", "gemma2", "gpt_neox", "opt", "vit")  # their softmax is in float32 always
IDS = torch.tensor([[9, 33, 21, 40, 11, 52]])


def places(model: Any) -> list[dict[str, Where]]:
    """Where the streams of each site are, scales to three digits."""
    return [
        {name: Where(w.module, w.side, w.run, round(w.scale, 3)) for name, w in s.streams.items()}
        for s in model.sites
    ]


@pytest.mark.parametrize("name", EAGER)
def test_a_softmax_in_float32_in_a_float64_model_is_no_error(name):
    model = interp.load(zoo.FAMILIES[name].build("eager").double(), name=name)
    check = check_model(model, seed=3)
    assert check.tolerance == 1e-9
    assert max(s.pattern_error for s in check.sites) < 1e-12
    assert all("softmax in float32" in s.note for s in check.sites)


def test_patterns_of_a_float64_model_are_in_float64_whatever_its_softmax_is_in():
    """Llama, eager: queries and keys of layer 0 are exact, so its patterns must be, too."""
    module: Any = zoo.FAMILIES["llama"].build("eager").double()
    cache = interp.load(module).capture(IDS, ["q", "k", "pattern", "scores"])
    q, k = cache["q", 0], cache["k", 0].repeat_interleave(3, 1)
    scores = (q @ k.mT * module.config.head_dim**-0.5)[..., :6, :6]
    future = torch.ones(6, 6, dtype=torch.bool).triu(1)
    want = scores.masked_fill(future, -torch.inf).softmax(-1)
    assert cache["pattern", 0].dtype == torch.float64
    torch.testing.assert_close(cache["pattern", 0], want, atol=1e-15, rtol=1e-13)
    with torch.no_grad():
        own = module(IDS, output_attentions=True).attentions
    for layer in range(3):  # the model's own are rounded
        assert 0 < (cache["pattern", layer] - own[layer]).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("product", "softmax"),
    [
        (torch.float64, torch.float32),
        (torch.float64, torch.float64),
        (torch.float32, torch.float64),  # GPT-J since transformers 5.24
        (torch.float32, torch.float32),
    ],
    ids=["narrow softmax", "wide", "narrow scores", "narrow"],
)
@pytest.mark.parametrize("by", [1, 1 + 1e-6])
def test_nothing_but_that_rounding_is_let_through(by, product, softmax):
    """A kernel whose scores are a millionth larger than it says, with either rounding."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as registry

    def kernel(which, q, k, v, mask, scaling, **kwargs):
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
        scores = q.to(product) @ k.to(product).mT * (scaling * by)
        scores = scores.masked_fill(~seen, -torch.inf)
        return (scores.softmax(-1, dtype=softmax).double() @ v).transpose(1, 2), None

    module: Any = zoo.FAMILIES["llama"].build("sdpa").double()
    registry["sdpa"] = kernel
    try:
        if by == 1:
            interp.load(module)
        else:
            with pytest.raises(CheckError, match="fails pattern·v == z"):
                interp.load(module)
    finally:
        del registry["sdpa"]


@pytest.mark.slow
@over("family", READ, ids=lambda f: f.name)
def test_streams_of_half_precision_are_where_those_of_float32_are(loaded, family):
    half = interp.load(family.build(family.attentions[-1]).bfloat16())
    assert places(half) == places(loaded(family.name))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_neox", "t5"])
def test_streams_are_found_where_a_layer_adds_less_than_half_precision_shows(loaded, name, dtype):
    """Embeddings a thousand times as large: what a layer adds is lost in the sum's rounding."""
    module: Any = zoo.FAMILIES[name].build()
    with torch.no_grad():
        module.get_input_embeddings().weight.mul_(1000)
    assert places(interp.load(module.to(dtype))) == places(loaded(name))


@pytest.mark.parametrize("name", ["llama", "granite", "bloom", "t5"])
def test_captured_streams_of_half_precision_add_up_to_its_rounding(name):
    model = interp.load(zoo.FAMILIES[name].build().bfloat16())
    names = ["resid_pre", "attn_out", "resid_mid", "mlp_out", "resid_post"]
    cache = model.capture(zoo.FAMILIES[name].inputs(), names, stack=model.stacks[0])
    eps = torch.finfo(torch.bfloat16).eps
    for site in model.sites:
        if site.stack != model.stacks[0]:
            continue
        pre, attention, mid, mlp, post = (cache[n, site.layer, site.stack].double() for n in names)
        for total, parts in ((mid, (pre, attention)), (post, (mid, mlp))):
            bound = eps * (total.abs() + sum(x.abs() for x in parts))
            assert bool(((total - sum(parts)).abs() <= bound).all()), site.name
            assert float((total - parts[0]).norm()) > 0.01 * float(total.norm())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=["float64", "bfloat16"])
@pytest.mark.parametrize("name", ["bloom", "falcon_alibi", "gptj", "llama"])
def test_attention_code_of_a_models_own_is_scored_in_every_type(loaded, name, dtype):
    prompts = [[5, 9, 7, 5, 9, 7], [8, 6, 8, 6]]
    model = interp.load(zoo.FAMILIES[name].build("eager").to(dtype), name=name)
    names = ["induction", "entropy"]
    found = interp.score(model, names, prompts=prompts, null="none").to_pandas()
    want = interp.score(loaded(name, "eager"), names, prompts=prompts, null="none").to_pandas()
    close = 1e-6 if dtype == torch.float64 else 0.1
    assert found["score"].to_numpy() == pytest.approx(want["score"].to_numpy(), abs=close)


def shifted(name: str, dtype: torch.dtype, by: float) -> Any:
    """A model under eager attention whose scores share an offset, as biases of keys give one."""
    module: Any = zoo.FAMILIES[name].build("eager")
    with torch.no_grad():
        for part, x in module.named_parameters():
            if part.endswith(("q_proj.weight", "k_proj.weight")):
                x.mul_(by)
            if part.endswith(("q_proj.bias", "k_proj.bias")):
                x.add_(by)
    return module.to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize(("name", "by"), [("qwen2", 3.0), ("gemma2", 3.0), ("gpt_oss", 3.0)])
def test_eager_attention_of_half_precision_is_read_as_the_model_computed_it(name, by, dtype):
    """Scores are rounded to 16 bits at every step there; the pattern is the model's to one bit."""
    module = shifted(name, dtype, by)
    model = interp.load(module, name=name)
    cache = model.capture(IDS, ["pattern"])
    with torch.no_grad():
        own = module(IDS, output_attentions=True).attentions
    eps = torch.finfo(dtype).eps
    exact = 0.0
    for layer, want in enumerate(own):
        got = cache["pattern", layer]
        assert float((got - want.float()).abs().max()) <= eps
        exact = max(exact, float(want.max()))
    assert exact > 0.5  # scores are large enough to matter
    prompt = [IDS[0].tolist()]
    table = interp.score(model, "previous_token", prompt, null="none")
    assert {about["engine"] for about in table.provenance.values()} == {"stored"}
    want = torch.stack([x[0].double().diagonal(-1, -2, -1).mean(-1) for x in own]).flatten()
    got = torch.tensor(table.to_pandas()["score"].to_numpy())
    assert float((got - want).abs().max()) <= eps
