"""A model's hash follows its weights, however they are changed, and is taken once where not."""

from __future__ import annotations

import pytest
import torch
import zoo

import interp
from interp.model import content
from interp.model import transformer as model_file


@pytest.fixture
def fresh_gpt2() -> interp.Model:
    return interp.load(zoo.FAMILIES["gpt2"].build("sdpa"))


def _optimiser(weight: torch.nn.Parameter) -> None:
    weight.grad = torch.ones_like(weight)
    torch.optim.SGD([weight], 0.1).step()
    weight.grad = None


def _exchange(weight: torch.nn.Parameter) -> None:
    other = weight.data.clone()
    other[0, 1] += 1
    weight.data = other


CHANGES = {
    "in place": lambda w: w.detach().mul_(2),
    "an optimiser": _optimiser,
    "a row through .data": lambda w: w.data[3].zero_(),
    "a column through .data": lambda w: w.data[:, 2].zero_(),
    "the sign of a column through .data": lambda w: w.data[:, 3].neg_(),
    "one entry through .data": lambda w: w.data[0, 1].add_(1),
    "one entry of another tensor": _exchange,
    "two rows exchanged through .data": lambda w: w.data.copy_(w.data[[1, 0, *range(2, len(w))]]),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_change_is_seen(fresh_gpt2, how) -> None:
    before = fresh_gpt2.content_hash
    weight = fresh_gpt2.module.get_submodule(fresh_gpt2.sites[0].projection).weight
    CHANGES[how](weight)
    after = fresh_gpt2.content_hash
    assert after != before
    assert after == content.content_hash(fresh_gpt2.module)
    made = interp.score(fresh_gpt2, "entropy", [[1, 2, 3, 4]], null="none").provenance
    assert made[fresh_gpt2.name, "entropy"]["content_hash"] == after


def test_it_is_taken_once_where_nothing_changed(fresh_gpt2, monkeypatch) -> None:
    taken = []

    def counted(module):
        taken.append(module)
        return content.content_hash(module)

    monkeypatch.setattr(model_file, "content_hash", counted)
    first = fresh_gpt2.content_hash
    fresh_gpt2.run([[1, 2, 3]])
    with fresh_gpt2.edited(interp.zero([(0, 0)])):
        assert fresh_gpt2.content_hash == first
    assert fresh_gpt2.content_hash == first
    assert len(taken) == 1


def test_a_score_of_several_metrics_reads_the_weights_once(fresh_gpt2, monkeypatch) -> None:
    read = []

    def counted(module):
        read.append(module)
        return content.checksum(module)

    monkeypatch.setattr(model_file, "checksum", counted)
    interp.score(fresh_gpt2, ["entropy", "first_token", "induction", "ov_norm"], null="none")
    assert len(read) == 1


def test_tensors_made_in_inference_mode_have_a_hash() -> None:
    with torch.inference_mode():  # where they count no versions
        module = zoo.FAMILIES["gpt2"].build("sdpa")
        first = content.checksum(module)
        module.get_submodule("lm_head").weight.mul_(2)
        assert content.checksum(module) != first


@pytest.fixture(params=["on the host", "on another device"])
def reduced_where(request, monkeypatch) -> None:
    """Reduce tensors in either way; that of other devices runs on this one, too."""
    monkeypatch.setattr(content, "_on_host", lambda x: request.param == "on the host")


def test_every_single_entry_counts(reduced_where) -> None:
    """400 entries of tensors large enough to be reduced, and of their ends, one at a time."""
    module = torch.nn.Linear(257, 301)  # 2.4 blocks of 32 KiB, with a rest that is no whole word
    generator = torch.Generator().manual_seed(0)
    weight, first = module.weight.data, content.checksum(module)
    for _ in range(400):
        row, column = (int(torch.randint(n, (), generator=generator)) for n in weight.shape)
        old = weight[row, column].clone()
        weight[row, column] = torch.nextafter(old, old + 1)
        assert content.checksum(module) != first, (row, column)
        weight[row, column] = old
    assert content.checksum(module) == first


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_signs_and_places_count(dtype, reduced_where) -> None:
    """Changes that a plain sum of words, modulo a power of two, would not show."""
    module = torch.nn.Linear(128, 512, bias=False).to(dtype)
    weight, first = module.weight.data, content.checksum(module)
    whole = weight.clone()
    for change in (
        lambda: weight.mul_(-1),
        lambda: weight[:64].mul_(-1),
        lambda: weight[:, 1].mul_(-1),
        lambda: weight[:, 3::4].mul_(-1),
        lambda: weight.copy_(weight.flip(0)),
        lambda: weight.copy_(weight.roll(1, 1)),
        lambda: weight.copy_(weight[:, [1, 0, *range(2, 128)]]),
    ):
        change()
        assert content.checksum(module) != first
        weight.copy_(whole)
    assert content.checksum(module) == first


def test_views_are_their_values(reduced_where) -> None:
    storage = torch.randn(100_001)
    module = torch.nn.Module()
    module.register_buffer("at_an_odd_place", storage[1:].view(100, 1000).t())
    whole = torch.nn.Module()
    whole.register_buffer("at_an_odd_place", storage[1:].view(100, 1000).t().contiguous())
    assert content.checksum(module) == content.checksum(whole)


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions:UserWarning")
@pytest.mark.parametrize("per_channel", [False, True])
def test_quantised_weights_have_a_hash(per_channel) -> None:
    found = set()
    for scale in (0.05, 0.06):
        module = torch.nn.Module()
        x = torch.linspace(-1, 1, 64).view(8, 8)
        if per_channel:
            zeros = torch.zeros(8, dtype=torch.long)
            x = torch.quantize_per_channel(x, torch.full((8,), scale), zeros, 0, torch.qint8)
        else:
            x = torch.quantize_per_tensor(x, scale, 3, torch.qint8)
        module.register_buffer("w", x)
        found |= {content.content_hash(module), content.checksum(module)}
    assert len(found) == 4


def test_a_module_that_is_held_is_read_once_and_not_kept_alive(monkeypatch) -> None:
    import gc
    from weakref import ref

    module = torch.nn.Linear(4, 4)
    release = content.hold(module)
    first = content.checksum(module)
    monkeypatch.setattr(content, "_reduced", None)
    assert content.checksum(module) == first
    monkeypatch.undo()
    release()
    module.weight.data[0, 0] += 1
    assert content.checksum(module) != first
    release, alive = content.hold(module), ref(module)
    del module
    gc.collect()
    assert alive() is None
    release()
