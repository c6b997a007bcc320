"""Variants that live in a model of images or of two sequences, against their formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.special import expit, softmax
from together import over

import interp
from interp.bundled.shape_images import shape_images
from interp.core.errors import OptionError, UnknownName
from training import forms
from training.forms.host_rules import InsidePatches
from training.forms.rule import RuleShape

IMAGES, SOURCES = forms.variant_names("on_images"), forms.variant_names("on_sources")
HEADS, WIDTH, GRID = 2, 4, (3, 5)
Entry = Callable[[Any, Any, int, int, int], float]
FIRST = torch.tensor([[5, 6, 7, 8, 9, 10, 11], [12, 13, 14, 15, 16, 17, 18]])
TARGET = torch.tensor([[1, 5, 6, 7], [1, 8, 9, 5]])


@over("name", (*IMAGES, *SOURCES))
def test_the_map_times_values_is_what_the_module_computes(name):
    model = forms.load(name)
    assert not model.unread
    assert {s.stack for s in model.sites} == {"cross" if name in SOURCES else "encoder"}
    assert not any(s.causal for s in model.sites)
    assert len(model.sites) == (1 if name in SOURCES else 4 if name == "inner_patches" else 2)
    for s in interp.model.check_model(model).sites:
        assert s.pattern_error < 1e-5
        assert s.result_error is not None
        assert s.result_error < 1e-5


@over("name", (*IMAGES, *SOURCES))
def test_gradients_reach_every_weight(name):
    model: Any = forms.build(name).train()
    if name in IMAGES:
        pixels = torch.tensor(shape_images(0, 8).pixels)
        model(pixels, labels=torch.arange(8) % 4).loss.backward()
    else:
        model(FIRST, TARGET, labels=TARGET).loss.backward()
    for key, weight in model.named_parameters():
        assert weight.grad is not None, key
        assert bool(weight.grad.isfinite().all()), key
        assert bool(weight.grad.any()), key


# --- formulas, one entry at a time ---


def rule_and_state(name: str, rule: Any = None, grid: tuple[int, int] = GRID) -> tuple[Any, Any]:
    """A rule of random weights in float64, and its tensors: on a grid, or of 6 rows on 7 words."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        shape = RuleShape(HEADS * WIDTH, HEADS, WIDTH, 16)
        made: Any = (rule or forms.rule_class(name))(shape).double()
        number = 6 if name in SOURCES else math.prod(grid)
        x = 2 * torch.randn(1, number, HEADS * WIDTH, dtype=torch.float64)
        source = 2 * torch.randn(1, 7, HEADS * WIDTH, dtype=torch.float64)
        real = torch.tensor([[True] * 6 + [False]])
    return made.eval(), made.within(x, (source, real) if name in SOURCES else grid)


def at(n: int) -> tuple[int, int]:
    return divmod(n, GRID[1])


def product(state: Any, h: int, i: int, j: int) -> float:
    return float(state.q[0, h, i] @ state.k[0, h, j]) / math.sqrt(WIDTH)


def over_keys(score: Callable[[int], float], keep: Callable[[int], bool], n: int, j: int) -> float:
    kept = [m for m in range(n) if keep(m)]
    if j not in kept:
        return 0.0
    return float(softmax([score(m) for m in kept])[kept.index(j)])


def convolved(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Each channel over the grid: [patch, channel] by [channel, row, column]."""
    found, reach = np.zeros_like(x), kernel.shape[1] // 2
    for n in range(len(x)):
        for m in range(len(x)):
            down, right = at(m)[0] - at(n)[0], at(m)[1] - at(n)[1]
            if abs(down) <= reach and abs(right) <= reach:
                found[n] += x[m] * kernel[:, down + reach, right + reach]
    return found


def projected(rule: Any, part: str, x: np.ndarray) -> np.ndarray:
    return (x @ getattr(rule, part).weight.detach().numpy().T).reshape(len(x), HEADS, WIDTH)


def grid_positions(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    x = state.x.numpy()[0]
    x = x + convolved(x, rule.kernel.detach().numpy())
    q, k = projected(rule, "query", x)[:, h], projected(rule, "key", x)[:, h]
    return over_keys(lambda m: q[i] @ k[m] / 2, lambda m: True, len(x), j)


def focused_grid(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    def phi(x: torch.Tensor) -> np.ndarray:
        r = np.maximum(x.numpy(), 0) + 1e-6
        return np.linalg.norm(r) / np.linalg.norm(r**3) * r**3

    f = [phi(state.q[0, h, i]) @ phi(k) for k in state.k[0, h]]
    return float(f[j] / sum(f))


def halo(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    def inside(m: int) -> bool:
        return all(
            b - 1 <= c <= b + 2 for b, c in zip((2 * (x // 2) for x in at(i)), at(m), strict=True)
        )

    def score(m: int) -> float:
        gaps = [c - a for a, c in zip(at(i), at(m), strict=True)]
        bias = sum(rule.apart.detach().numpy()[axis, h, gap + 4] for axis, gap in enumerate(gaps))
        return product(state, h, i, m) + bias

    return over_keys(score, inside, math.prod(GRID), j)


def grid_routing(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    def region(m: int) -> tuple[int, int]:
        return at(m)[0] // 2, at(m)[1] // 2

    number = math.prod(GRID)
    every = sorted({region(m) for m in range(number)})
    q, k = (
        {r: t[0, h].numpy()[[region(m) == r for m in range(number)]].mean(0) for r in every}
        for t in (state.q, state.k)
    )
    best = sorted(every, key=lambda r: -float(q[region(i)] @ k[r]))[:4]
    return over_keys(lambda m: product(state, h, i, m), lambda m: region(m) in best, number, j)


def memory_tokens(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    k = projected(rule, "key", rule.memory.detach().numpy()[0])[:, h]
    scores = [product(state, h, i, m) for m in range(math.prod(GRID))]
    return float(softmax([*scores, *(k @ state.q[0, h, i].numpy() / 2)])[j])


def inside(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    return over_keys(lambda m: product(state, h, i, m), lambda m: m // 4 == i // 4, 15, j)


def concat(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    u = rule.u.detach().numpy()[h, 0, 0]
    return over_keys(
        lambda m: u @ (state.q[0, h, i] + state.k[0, h, m]).tanh().numpy(), lambda m: m < 6, 7, j
    )


def window(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    hidden = np.tanh(rule.hidden.weight.detach().numpy() @ state.x.numpy()[0, i])
    place = 6 * expit(rule.place.weight.detach().numpy()[h] @ hidden)
    nearest = min(range(6), key=lambda m: abs(m - place))
    soft = over_keys(
        lambda m: product(state, h, i, m),
        lambda m: m < 6 and (abs(m - place) <= 2 or m == nearest),
        7,
        j,
    )
    return soft * math.exp(-((j - place) ** 2) / 2)


def location(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    def linear(part: Any, n: int) -> float:
        return float((part.weight[h] @ state.x[0, n] + part.bias[h]).detach())

    place = sum(min(max(linear(rule.step, n) / 6 + 0.5, 0), 1) for n in range(i + 1)) - 1
    share = expit(linear(rule.gate, i))
    return over_keys(
        lambda m: -2 * (share * (5 - m) + (1 - share) * m - place) ** 2, lambda m: m < 6, 7, j
    )


def past(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    def share(m: int) -> float:
        each = [math.exp(product(state, h, n, m)) for n in range(i + 1)]
        return each[-1] / (sum(each[:-1]) if i else 1)

    return 0.0 if j >= 6 else share(j) / sum(share(m) for m in range(6))


def plain(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    n = state.k.shape[2]
    return over_keys(lambda m: product(state, h, i, m), lambda m: n == 15 or m < 6, n, j)


ENTRIES: dict[str, Entry] = {
    "patches": plain,
    "grid_positions": grid_positions,
    "focused_grid": focused_grid,
    "halo": halo,
    "grid_routing": grid_routing,
    "memory_tokens": memory_tokens,
    "inner_patches": plain,
    "inside": inside,
    "source": plain,
    "source_concat": concat,
    "source_window": window,
    "source_location": location,
    "source_draw": plain,
    "source_past": past,
}


@torch.no_grad()
@over("name", ENTRIES)
def test_entries_are_the_formula_of_the_paper(name):
    rule, state = rule_and_state(name, InsidePatches if name == "inside" else None)
    found = rule.rows(state, state.every).numpy()[0]
    for i in range(0, found.shape[1], 2):
        for j in range(found.shape[2]):
            for h in range(HEADS):
                wanted = ENTRIES[name](rule, state, h, i, j)
                assert found[h, i, j] == pytest.approx(wanted, abs=1e-9), (h, i, j)


@torch.no_grad()
@over("name", ["focused_grid", "grid_routing"])
def test_the_convolution_beside_the_map_is_over_the_grid(name):
    rule, state = rule_and_state(name)
    kernel = np.broadcast_to(rule.kernel.numpy().reshape(-1, WIDTH, 5, 5), (HEADS, WIDTH, 5, 5))
    for h in range(HEADS):
        wanted = convolved(state.v[0, h].numpy(), kernel[h])
        np.testing.assert_allclose(rule.rest(state)[0, h].numpy(), wanted, atol=1e-12)
    whole = rule.rows(state, state.every) @ state.v + rule.rest(state)
    torch.testing.assert_close(rule.mix(state), whole)


@torch.no_grad()
def test_memory_tokens_stand_beside_the_patches():
    rule, state = rule_and_state("memory_tokens")
    plain: Any = forms.rule_class("patches")(rule.shape).double()
    plain.query, plain.key, plain.value = rule.query, rule.key, rule.value
    together = plain.within(
        torch.cat([rule.memory, state.x], 1), (1, rule.slots + state.x.shape[1])
    )
    torch.testing.assert_close(rule.mix(state), plain.mix(together)[:, :, rule.slots :])


# --- the models ---


@torch.no_grad()
def test_a_table_of_positions_is_interpolated_for_another_size():
    module: Any = forms.build("patches")
    seen: list[torch.Tensor] = []
    module.blocks[0].register_forward_pre_hook(lambda m, args: seen.append(args[0]))
    for side in (24, 48):
        module(torch.zeros(1, 3, side, side))
    small, large = (
        x[0, :, 0].view(side, side).numpy() for x, side in zip(seen, (6, 12), strict=True)
    )
    wanted = Image.fromarray(small).resize((12, 12), Image.Resampling.BILINEAR)
    np.testing.assert_allclose(large, np.array(wanted), atol=1e-6)


@torch.no_grad()
def test_patches_stand_row_by_row_and_inner_tokens_patch_by_patch():
    module: Any = forms.build("inner_patches", image_size=16)
    seen: dict[str, Any] = {}
    for name in ("blocks", "inner"):
        module.get_submodule(f"{name}.0").register_forward_pre_hook(
            lambda m, args, name=name: seen.update({name: args[0]})
        )
    blank = torch.zeros(1, 3, 16, 16)
    module(blank)
    before = dict(seen)
    blank[0, :, 6:8, 8:10] = 5.0  # row 1, column 2 of patches; below left inside the patch
    module(blank)
    moved = {
        name: (seen[name] - before[name]).abs().amax((0, 2)).nonzero()[:, 0].tolist()
        for name in seen
    }
    assert moved == {"blocks": [1 * 4 + 2], "inner": [4 * (1 * 4 + 2) + 2]}


@torch.no_grad()
def test_images_of_another_size_run_and_a_grid_need_not_be_square():
    pixels = torch.randn(2, 3, 16, 32, generator=torch.Generator().manual_seed(0))
    for name in IMAGES:
        logits = forms.build(name)(pixels).logits
        assert logits.shape == (2, 4)
        assert bool(logits.isfinite().all())


@torch.no_grad()
def test_images_are_scored_and_drawn_like_those_of_other_models():
    model, images = forms.load("halo"), shape_images(0, 3)
    found = interp.vision.patch_distance(model, images).to_pandas()
    assert len(found) == len(model.sites) * 4
    assert float(found.score.max()) < 3  # patches: a row sees two around it, corners included
    far = interp.vision.patch_distance(forms.load("patches"), images).to_pandas()
    assert float(far.score.min()) < float(far.score.max())
    assert float(far.score.mean()) > float(found.score.mean())


@torch.no_grad()
def test_padding_of_a_source_changes_nothing():
    mask = torch.ones_like(FIRST)
    mask[1, 4:] = 0
    for name in SOURCES:
        module: Any = forms.build(name)
        both = module(FIRST, TARGET, attention_mask=mask).logits
        alone = module(FIRST[1:, :4], TARGET[1:]).logits
        torch.testing.assert_close(both[1:], alone, atol=1e-5, rtol=1e-4)
    with pytest.raises(OptionError, match="pad them on the right"):
        module(FIRST, TARGET, attention_mask=mask.flip(1))


@torch.no_grad()
@pytest.mark.parametrize("name", ["halo", "source_window"])
def test_a_saved_model_loads_as_a_folder(name, tmp_path):
    pair = {"input_ids": FIRST, "decoder_input_ids": TARGET}
    given: Any = pair if name in SOURCES else {"pixel_values": torch.ones(1, 3, 24, 24)}
    module: Any = forms.build(name, seed=1)
    module.save_pretrained(tmp_path)
    again: Any = interp.load(tmp_path)
    torch.testing.assert_close(again.module(**given).logits, module(**given).logits)


def test_a_draw_reads_one_word_while_training_and_their_mean_later():
    rule, state = rule_and_state("source_draw")
    soft = rule.rows(state, state.every).detach()
    drawn = torch.stack([rule.train().rows(state, state.every) for _ in range(4000)]).detach()
    assert set(drawn.round(decimals=6).unique().tolist()) <= {0.0, 1.0}
    assert float((drawn.mean(0) - soft).abs().max()) < 0.04  # 5 standard errors of a half


def test_names_are_those_of_one_kind_and_another_kind_is_refused() -> None:
    kinds = [set(forms.variant_names(of)) for of in forms.HOSTS]
    assert sum(map(len, kinds)) == len(set.union(*kinds)) == len(forms.variant_names())
    with pytest.raises(UnknownName, match="did you mean on_images"):
        forms.variant_names("images")


def test_hosts_are_models_of_transformers_that_say_what_they_read() -> None:
    from training.forms.image_model import VariantForImageClassification
    from training.forms.pair_model import VariantForTranslation

    images, pairs = (forms.build(names[0]) for names in (IMAGES, SOURCES))
    assert isinstance(images, VariantForImageClassification)
    assert images.main_input_name == "pixel_values"
    assert isinstance(pairs, VariantForTranslation)
    assert pairs.main_input_name == "input_ids"
