"""Compiled, parallel and PEFT wrappers are taken off; packed weights are refused by name."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import zoo
from torch import nn

import interp
from interp.core.errors import LoadError
from interp.core.registry import METRICS

IDS = torch.tensor([[9, 33, 21, 40, 11]])


class LoraLinear(nn.Module):
    """As PEFT does: the matrix with a product of two small ones beside it, behind a dropout."""

    def __init__(self, base: nn.Linear):
        super().__init__()
        self.base_layer = base
        self.lora_dropout = nn.Dropout(0.3)
        self.lora_A = nn.Linear(base.in_features, 2, bias=False)
        self.lora_B = nn.Linear(2, base.out_features, bias=False)

    @property
    def weight(self) -> torch.Tensor:
        return self.base_layer.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base_layer(x) + self.lora_B(self.lora_A(self.lora_dropout(x)))


class PeftModel(nn.Module):
    """The outside of a PEFT model: two wrappers, adapters put into the model inside."""

    def __init__(self, model: nn.Module, prompts: bool = False):
        super().__init__()
        self.base_model = nn.Module()
        self.base_model.model = model
        self.active_peft_config = SimpleNamespace(is_prompt_learning=prompts)
        self.peft_config = {"default": self.active_peft_config}

    def get_base_model(self) -> nn.Module:
        return self.base_model.model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.get_base_model()(*args, **kwargs)


def adapted(family: str = "llama") -> nn.Module:
    """A model with an adapter beside every matrix but the unembedding."""
    module = zoo.FAMILIES[family].build(zoo.FAMILIES[family].attentions[-1])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for name, part in list(module.named_modules()):
            if type(part) is nn.Linear and name != "lm_head":
                parent, _, attribute = name.rpartition(".")
                setattr(module.get_submodule(parent), attribute, LoraLinear(part))
    return module.eval()


def test_a_peft_model_is_read_with_its_adapters():
    model = interp.load(PeftModel(adapted()), name="adapted")
    assert model.source == "transformers, inside PeftModel"
    plain, with_adapters = zoo.FAMILIES["llama"].build("sdpa"), adapted()
    with torch.no_grad():
        assert torch.equal(model.run(IDS), with_adapters(IDS).logits)
        assert not torch.equal(model.run(IDS), plain(IDS).logits)
    (about,) = interp.score(model, "entropy", null="none").provenance.values()
    assert about["source"] == model.source


def in_training(family: str) -> nn.Module:
    """The same in training mode; a part that is called in that mode raises."""

    def refuse(part: nn.Module, *_: object) -> None:
        assert not part.training, f"{type(part).__name__} was called in training mode"

    module = adapted(family).train()
    for part in module.modules():
        part.register_forward_pre_hook(refuse)
    return module


@pytest.mark.parametrize("family", ["llama", "olmo2", "gemma2"])
def test_adapters_in_training_mode_give_the_numbers_of_evaluation_mode(family):
    """Every metric of weights, the lenses and the sum of head results; dropout would show."""
    calm, busy = (interp.load(m, name="m") for m in (adapted(family), in_training(family)))
    names = sorted(n for n, m in METRICS.items() if m.group == "weights")
    for name in [*names, "entropy"]:
        mine, other = (interp.score(m, name, null="none").to_pandas() for m in (busy, calm))
        assert mine["score"].equals(other["score"]), name
    for read in (interp.lens.logit_lens, interp.lens.direct_logit_attribution):
        mine, other = (read(m, [IDS[0].tolist()]).to_pandas() for m in (busy, calm))
        assert mine.equals(other), read.__name__
    cache = busy.capture(IDS, ["result", "attn_out"])
    for site in busy.sites:
        total = cache["result", site.layer].sum(2)
        writes = busy.weights_of(site)
        after = writes.layout.o
        assert not isinstance(after, str)
        if after.after is None:
            torch.testing.assert_close(total, cache["attn_out", site.layer], atol=1e-5, rtol=0)
    assert all(part.training for part in busy.module.modules())


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("targets", [["q_proj", "v_proj"], ["q_proj", "v_proj", "o_proj"]])
def test_a_lora_model_of_peft_in_training_mode_is_read(targets):
    peft = pytest.importorskip("peft", reason="needs the package peft")
    config = peft.LoraConfig(
        r=4,
        target_modules=targets,
        lora_dropout=0.3,
        init_lora_weights=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = peft.get_peft_model(zoo.FAMILIES["llama"].build("sdpa"), config)
    found = {}
    for mode in (True, False):
        model = interp.load(module.train(mode), name="lora")
        assert interp.model.check_model(model).passed
        tables = [interp.score(model, "ov_norm", null="none").to_pandas() for _ in range(2)]
        assert tables[0]["score"].equals(tables[1]["score"])
        assert module.training is mode
        found[mode] = tables[0]["score"]
    assert found[True].equals(found[False])


def test_learned_prompts_are_refused():
    with pytest.raises(LoadError, match="PeftModel puts learned vectors before the prompt"):
        interp.load(PeftModel(zoo.FAMILIES["llama"].build("sdpa"), prompts=True))


def wrapped(kind: str) -> nn.Module:
    module = zoo.FAMILIES["llama"].build("sdpa")
    if kind == "compiled":
        return torch.compile(module, backend="eager")
    if kind == "compiled in place":
        module.compile(backend="eager")
    elif kind == "compiled forward":
        module.forward = torch.compile(module.forward, backend="eager")
    elif kind == "compiled layer":
        module.model.layers[0] = torch.compile(module.model.layers[0], backend="eager")
    elif kind == "parallel":
        return nn.DataParallel(module)
    elif kind == "both":
        return torch.compile(PeftModel(module), backend="eager")
    return module


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("compiled", "transformers, inside OptimizedModule"),
        ("compiled in place", "transformers"),
        ("compiled layer", "transformers"),
        ("compiled forward", "transformers"),
        ("parallel", "transformers, inside DataParallel"),
        ("both", "transformers, inside OptimizedModule and PeftModel"),
    ],
)
def test_a_wrapped_model_scores_as_the_model_inside(kind, source):
    model = interp.load(wrapped(kind), name="wrapped")
    assert model.source == source
    assert interp.model.check_model(model).passed
    plain = interp.load(zoo.FAMILIES["llama"].model("sdpa"), name="plain")
    scores = [
        interp.score(m, ["entropy", "induction"]).to_pandas()[["score", "null"]]
        for m in (model, plain)
    ]
    assert scores[0].equals(scores[1])
    assert torch.equal(model.run(IDS), plain.run(IDS))


def test_a_forward_that_is_compiled_after_loading_is_read():
    module = zoo.FAMILIES["llama"].build("sdpa")
    model = interp.load(module, name="later")
    before = interp.score(model, "entropy", null="none").to_pandas()["score"]
    module.forward = compiled = torch.compile(module.forward, backend="eager")
    assert interp.score(model, "entropy", null="none").to_pandas()["score"].equals(before)
    assert module.forward is compiled


@pytest.mark.parametrize(
    ("family", "path"),
    [("llama", "model.layers.0.self_attn.q_proj"), ("bert", "bert.encoder.layer.0.attention")],
)
def test_packed_weights_are_refused_naming_the_module(family, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces another package for it
        packed = torch.ao.quantization.quantize_dynamic(
            zoo.FAMILIES[family].build("sdpa"), {nn.Linear}, dtype=torch.qint8
        )
    with pytest.raises(LoadError, match=rf"{path}.* is a quantised Linear of torch .* packed"):
        interp.load(packed)
