"""Families with attention code of their own: every engine gives the stored numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import zoo
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from zoo.legacy import LEGACY

import interp
from interp.core.errors import OptionError, UnreadableAttention
from interp.core.prompts import Prompts, repeats
from interp.core.registry import METRICS
from interp.model.calls.call import ComputedCall
from interp.model.hooks.formula_call import aligned

ALL = [e.name for e in METRICS.values() if e.group == "detectors"]
SUMS = ("deberta", "deberta_v2", "xlnet")  # scores are sums of products
STREAMED = [f.name for f in LEGACY]
LONG = 512


@pytest.fixture(scope="module")
def own():
    made: dict[str, interp.Model] = {}

    def of(name: str) -> interp.Model:
        if name not in made:
            made[name] = interp.load(zoo.FAMILIES[name].model("eager"), name=name)
        return made[name]

    return of


def scores(model: interp.Model, engine: str, prompts: Prompts) -> np.ndarray:
    table = interp.score(model, ALL, prompts, null="none", engine=engine)
    assert {about["engine"] for about in table.provenance.values()} == {engine}
    return table.to_pandas().sort_values(["metric", "layer", "head"])["score"].to_numpy()


@pytest.mark.parametrize("name", STREAMED)
def test_every_engine_gives_the_stored_scores(own, name) -> None:
    model = own(name)
    prompts = repeats(model, n=3, max_length=12)  # of several lengths: some are padded
    stored = scores(model, "stored", prompts)
    assert np.isfinite(stored).any()
    for engine in ("streamed", "fused"):
        np.testing.assert_allclose(scores(model, engine, prompts), stored, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", STREAMED)
def test_streamed_leaves_the_run_as_it_was_and_fused_changes_it_by_rounding(own, name) -> None:
    model = own(name)
    prompts = repeats(model, n=2, max_length=9)
    inputs = model.inputs(prompts)
    seen: list[Any] = []

    def visit(site, call, real) -> None:
        seen.append(call)
        assert isinstance(call, ComputedCall)

    def compute(site, call, real) -> None:
        visit(site, call, real)
        call.z = call.mix(call.pattern())

    plain = model.run(inputs)
    assert torch.equal(model.read(inputs, visit, streamed=True), plain)
    fused = model.read(inputs, compute, fused=True)
    real = prompts.padded()[1][:, -plain.shape[1] :].bool()
    torch.testing.assert_close(fused[real], plain[real], rtol=1e-4, atol=1e-4)
    assert len(seen) == 2 * len(model.sites)
    assert all(isinstance(call, ComputedCall) for call in seen)


@pytest.mark.parametrize("name", SUMS)
def test_scores_that_are_sums_of_products_have_no_single_q_and_k(own, name) -> None:
    model = own(name)
    assert not any(site.recorded or site.has_qk for site in model.sites)
    with pytest.raises(UnreadableAttention, match="sum of several products, so no single q"):
        model.capture([[5, 6, 7]], ["q"])


class Louder(torch.nn.Module):
    """A dropout that is not the identity: the pattern is not the softmax of the scores."""

    def forward(self, x):
        return x * 1.5


def test_a_pattern_changed_after_the_softmax_is_not_recomputed() -> None:
    module: Any = zoo.FAMILIES["bloom"].build()
    module.transformer.h[1].self_attention.attention_dropout = Louder()
    model = interp.load(module, check=False, name="louder")
    assert [site.recorded for site in model.sites] == [i == 1 for i in range(len(model.sites))]
    with pytest.raises(OptionError, match=r"^engine='fused': louder computes .*h\.1\.self_att"):
        interp.score(model, "entropy", null="none", engine="fused")


@pytest.mark.parametrize("engine", ["streamed", "fused"])
def test_a_step_that_appears_after_loading_is_an_error_and_never_guessed(engine) -> None:
    module: Any = zoo.FAMILIES["bloom"].build()
    model = interp.load(module, name="changed")
    module.transformer.h[1].self_attention.attention_dropout = Louder()
    with pytest.raises(UnreadableAttention, match=r"computes its scores .*; use engine='stored'"):
        interp.score(model, "entropy", null="none", engine=engine)


class Storages(TorchDispatchMode):
    """Storages of at least some bytes: how many lived at once."""

    def __init__(self, least: int) -> None:
        super().__init__()
        self.least, self.live, self.most = least, {}, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (list, tuple)) else (out,):
            if isinstance(x, torch.Tensor) and x.device.type != "meta":
                self._count(x.untyped_storage())
        return out

    def _count(self, storage) -> None:
        if storage.nbytes() < self.least:
            return
        self.live = {key: ref for key, ref in self.live.items() if not ref.expired()}
        self.live[storage.data_ptr()] = StorageWeakRef(storage)
        self.most = max(self.most, len(self.live))


def counted(model: interp.Model, engine: str, length: int) -> Storages:
    """Storages as large as the patterns of one layer that a run makes."""
    ids = torch.randint(4, model.d_vocab, (length,), generator=torch.Generator().manual_seed(0))
    prompts = Prompts((tuple(ids.tolist()),))
    with Storages(4 * model.n_heads * length**2) as found:
        if engine == "plain":
            model.run(prompts)
        else:
            interp.score(model, ["entropy", "largest_weight"], prompts, null="none", engine=engine)
    return found


def longer(name: str) -> interp.Model:
    """The family with positions for more tokens."""
    family = zoo.FAMILIES[name]
    names = ("n_positions", "max_position_embeddings", "max_seq_len", "n_ctx")
    more = {key: LONG for key in names if key in family.config}
    family = replace(family, config=dict(family.config) | more)
    return interp.load(family.build("eager"), name=name)


@pytest.mark.parametrize("name", ["gptj", "bloom", "gpt_neo", "mpt", "codegen", "falcon", "xglm"])
def test_no_engine_but_stored_makes_a_pattern_of_its_own(name) -> None:
    model = longer(name)
    plain, streamed, fused = (counted(model, e, LONG) for e in ("plain", "streamed", "fused"))
    stored = counted(model, "stored", LONG)
    assert streamed.most <= plain.most < stored.most  # the model's own patterns, and no more
    assert fused.most == 0


def test_a_tensor_is_aligned_only_with_scores_of_its_own_axes() -> None:
    sizes = (2, 4, 5, 5)  # batch, head, query, key
    mask = torch.zeros(2, 1, 5, 5)
    assert aligned(mask, (2, 4), sizes) is mask
    assert aligned(mask, (2, 3), sizes) is None  # six rows of scores are not two by four heads
    assert aligned(torch.zeros(3, 1, 5, 5), (2, 4), sizes) is None
