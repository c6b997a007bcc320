"""Safety heads: the planted refusal head comes out on top of every score, and nothing else does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import subspace_angles

import interp
from interp import planted, safety
from interp.core.errors import OptionError, PromptError
from interp.model.edits import zero
from interp.model.locate.probe import probe
from interp.model.pattern_edits import uniform
from interp.model.segments import special_ids
from interp.safety.concentration import participation_ratio
from interp.safety.direction import at_layer, candidates
from interp.safety.projection import as_trials, crossed
from interp.safety.prompts import PromptSets, read_labelled
from interp.safety.streams import last_logits
from interp.safety.subspace import HiddenGame, main_axes, principal_angle

BUILT = planted.refusal(vocab=32, context=64)
[HEAD] = BUILT.roles["refusal"]


@pytest.fixture(scope="module")
def refusal_probe():
    return probe(BUILT.model, "planted:refusal")


@pytest.fixture(scope="module")
def sets(refusal_probe):
    full = safety.marker_sets(refusal_probe, n=8, max_length=12)
    return PromptSets.of(refusal_probe, full.harmful.ids[:7], full.harmless.ids)  # unequal sizes


def test_the_marker_is_a_word_and_no_special_token(refusal_probe):
    """Attention on special tokens is a sink, which descriptions of heads leave out."""
    assert BUILT.model.config.marker_token_id not in special_ids(refusal_probe)


def others_and_it(frame) -> tuple[np.ndarray, float]:
    mine = (frame["layer"] == HEAD[0]) & (frame["head"] == HEAD[1])
    return frame.loc[~mine, "score"].to_numpy(), float(frame.loc[mine, "score"].iloc[0])


def test_search_finds_what_the_head_writes_and_reports_each_filter(refusal_probe, sets):
    found = safety.search_direction(refusal_probe, sets.harmful, sets.harmless)
    written = BUILT.subspaces["refusal"][0].double()
    direction = safety.chosen_direction(found)
    assert direction.layer == HEAD[0] + 1
    assert float(direction.unit @ written) > 0.85  # two random halves of tokens are the rest
    frame = found.to_pandas()
    # below the head there is nothing to add; the last layer is over the bound
    assert frame["fails"].tolist() == ["added", "added", "", "layer"]
    chosen = frame.loc[2]
    assert chosen["ablated"] < 0 < found.clean[0]
    assert chosen["added"] > 0 > found.clean[1]
    assert chosen["kl"] < 1e-3
    assert found.refused[0] == 1
    with pytest.raises(OptionError, match="none of 4 candidate directions passes: 0 have"):
        safety.chosen_direction(
            safety.search_direction(refusal_probe, sets.harmful, sets.harmless, added=1e3)
        )


def test_a_direction_taken_out_is_gone_and_one_added_is_there(refusal_probe, sets):
    from interp.safety.streams import with_added, without

    r = torch.randn(refusal_probe.d_model, generator=torch.Generator().manual_seed(0)).double()
    with without(refusal_probe, r):
        cache = refusal_probe.capture([list(sets.harmful.ids[0])], ("resid_pre", "resid_post"))
    for x in cache.values.values():
        assert float((x.double() @ r / r.norm()).abs().max()) < 1e-5
    prompt = [list(sets.harmful.ids[0])]
    before = refusal_probe.capture(prompt, ("resid_pre",))["resid_pre", 2].double()
    with with_added(refusal_probe, 2, r):
        twice = [refusal_probe.capture(prompt, ("resid_post",))["resid_post", 1] for _ in range(2)]
        logits = [last_logits(refusal_probe, sets.harmful) for _ in range(2)]
    assert torch.equal(*logits)  # the second forward is changed as the first
    assert not torch.allclose(logits[0], last_logits(refusal_probe, sets.harmful), atol=1e-2)
    assert torch.allclose(twice[0].double(), before, atol=1e-6)  # layers below are left alone


def test_projection_finds_the_head_and_sums_to_the_difference(refusal_probe, sets):
    table = safety.refusal_projection_scores(refusal_probe, sets.harmful, sets.harmless)
    rest, it = others_and_it(table.to_pandas())
    assert it > 0.5
    assert np.abs(rest).max() < 0.01
    direction = next(d for d in candidates(refusal_probe, sets, [-1]) if d.layer == 3)
    shares = safety.refusal_projection_scores(refusal_probe, sets.harmful, sets.harmless, direction)
    frame = shares.to_pandas()
    embedding = next(d for d in candidates(refusal_probe, sets, [-1]) if d.layer == 0)
    parts = frame.loc[frame["layer"] < 3, "score"].sum()
    whole = parts + float(embedding.vector @ direction.unit) / direction.length
    assert whole == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("family", ["llama", "granite", "gemma3", "olmo2"])
def test_shares_of_all_parts_sum_to_one(family: str, loaded) -> None:
    """Also where what heads add is rescaled: by a factor (Granite), by a norm (Gemma 3, OLMo 2)."""
    model, layer = loaded(family), 1
    drawn = torch.randint(4, 60, (6, 8), generator=torch.Generator().manual_seed(1)).tolist()
    bad, good = drawn[:3], drawn[3:]
    direction = at_layer(model, PromptSets.of(model, bad, good), layer)
    found = safety.refusal_projection_scores(model, bad, good, direction).to_pandas()
    heads = found.loc[found["layer"] < layer, "score"].sum()
    names = ["resid_pre", "resid_mid", "resid_post"]
    caches = [model.capture([ids], names, layers=0) for ids in drawn]

    def share(streams: list[torch.Tensor]) -> float:
        along = torch.stack([x[0, -1].double() @ direction.unit for x in streams])
        return float(along[:3].mean() - along[3:].mean()) / direction.length

    attention = share([c["resid_mid", 0] - c["resid_pre", 0] for c in caches])
    others = share([c["resid_post", 0] - c["resid_mid", 0] + c["resid_pre", 0] for c in caches])
    assert abs(heads) > 1e-4
    assert heads == pytest.approx(attention, abs=1e-5)
    assert heads + others == pytest.approx(1, abs=1e-5)


def test_error_of_trials_is_that_of_two_means(refusal_probe, sets):
    pairs = crossed(refusal_probe, sets)
    for site, trials in as_trials(pairs).items():
        x, y = (part.numpy() for part in pairs[site])
        want = np.sqrt(x.var(0, ddof=1) / len(x) + y.var(0, ddof=1) / len(y))
        got = trials.numpy()
        np.testing.assert_allclose(got.std(0, ddof=1) / np.sqrt(len(got)), want, rtol=1e-9)
        np.testing.assert_allclose(got.mean(0), x.mean(0) - y.mean(0), atol=1e-12)


@pytest.mark.parametrize(("kind", "edit"), [("zero", zero), ("q", uniform)])
def test_ships_equals_full_forwards(refusal_probe, sets, kind, edit):
    found = safety.ships_scores(refusal_probe, sets.harmful, sets.harmless, kind=kind, null="none")
    clean = last_logits(refusal_probe, sets.harmful).log_softmax(-1)
    for label, got in zip(found.harmful.players.labels, found.harmful.per_prompt, strict=True):
        with refusal_probe.edited(edit(label)):
            after = last_logits(refusal_probe, sets.harmful).log_softmax(-1)
        want = (clean.exp() * (clean - after)).sum(-1).numpy()
        np.testing.assert_allclose(got, want, atol=2e-6)
    rest, it = others_and_it(found.harmful.table.to_pandas())
    assert it > 5
    assert rest.max() < 1e-3
    assert found.harmless is not None
    assert found.harmless.score.max() < 1e-3  # not one head matters on harmless prompts


@pytest.mark.parametrize("form", ["centred", "uncentred", "features"])
def test_sahara_equals_its_definition_and_takes_the_head_first(refusal_probe, sets, form):
    found = safety.sahara(refusal_probe, sets.harmful, sets.harmless, form=form, steps=2)
    assert found.taken[0] == f"L{HEAD[0]}H{HEAD[1]}"
    rest, it = others_and_it(found.table.to_pandas())
    assert it > 10 * rest.max()

    def hidden(*heads: str) -> np.ndarray:
        rows = []
        for ids in sets.together.ids:
            edits = [zero(list(heads))] if heads else []
            x = refusal_probe.capture([list(ids)], ("resid_post",), edits=edits)["resid_post", 3][
                0, -1
            ]
            rows.append(x.double().numpy())  # the planted norm is the identity
        return np.stack(rows)

    def axis(x: np.ndarray) -> np.ndarray:
        if form != "uncentred":
            x = x - x.mean(0)
        u, _, vt = np.linalg.svd(x)
        return vt[:1].T if form == "features" else u[:, :1]

    base = axis(hidden())
    for label in (found.taken[0], "L0H1"):
        want = np.degrees(subspace_angles(base, axis(hidden(label))))[0]
        got = found.angles[0, found.labels.index(label)]
        assert got == pytest.approx(want, abs=2e-3)
    pair = np.degrees(subspace_angles(base, axis(hidden(*found.taken))))[0]
    assert np.nanmax(found.angles[1]) == pytest.approx(pair, abs=2e-3)
    assert found.angle[found.step == 2] == np.nanmax(found.angles[1])


def test_prompt_space_does_not_see_a_rotation_and_features_do():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(6, 5)) * [9, 3, 1, 1, 1])
    turned = x @ torch.from_numpy(np.linalg.qr(rng.normal(size=(5, 5)))[0])

    def angle(form: str) -> float:
        return principal_angle(main_axes(x, form)[0], main_axes(turned, form)[0])

    assert angle("centred") < 1e-6
    assert angle("uncentred") < 1e-6
    assert angle("features") > 5


def test_hidden_states_do_not_hang_on_reuse(refusal_probe, sets):
    gates = 1 - torch.eye(16, dtype=torch.double)[[0, 6, 15]]
    fast = HiddenGame.of(refusal_probe, sets.together).hidden(gates)
    slow = HiddenGame.of(refusal_probe, sets.together, reuse=False, fold=False, restrict=False)
    torch.testing.assert_close(fast, slow.hidden(gates), atol=1e-5, rtol=0)


def test_curves_break_refusal_and_leave_the_rest(refusal_probe, sets):
    ranking = safety.ships_scores(refusal_probe, sets.harmful, null="none").harmful.table
    task = safety.refusal_log_odds(refusal_probe, sets.harmful)
    found = safety.safety_curves(refusal_probe, ranking, task, sets.harmless, k=2, n_random=8)
    assert found.removed[0] == f"L{HEAD[0]}H{HEAD[1]}"
    assert safety.outside_band(found.safety, 1)
    assert safety.damage_at(found.safety, 1) > 15
    assert abs(safety.damage_at(found.harmless, 1)) < 1e-3
    assert abs(found.safety.random[:, 1] - found.safety.clean).max() < 0.5  # other heads do nothing
    with pytest.raises(OptionError, match="k=17"):
        safety.safety_curves(refusal_probe, ranking, task, sets.harmless, k=17)


def test_participation_ratio_has_its_analytic_values():
    assert participation_ratio([0, 0, 5, 0]) == 1
    assert participation_ratio(np.full((3, 4), 1e-200)) == pytest.approx(12)
    assert participation_ratio([3, 3, 0, -9]) == pytest.approx(2)
    assert participation_ratio([2, 1]) == pytest.approx(9 / 5)
    with pytest.raises(OptionError, match="no score is above zero"):
        participation_ratio([0, -1])


def test_of_random_weights_no_head_stands_out():
    import zoo

    random = interp.load(zoo.FAMILIES["llama"].model("sdpa"), name="llama")
    frame = interp.score(random, "refusal_projection", null="none").to_pandas()
    assert (frame["score"].abs() < 4.5 * frame["sem"]).all()


def test_sets_that_coincide_and_files_that_are_bad(refusal_probe, sets, tmp_path):
    same = [list(p) for p in sets.harmful.ids]
    with pytest.raises(PromptError, match="are the same 7 prompts"):
        safety.refusal_projection_scores(refusal_probe, same, same)
    with pytest.raises(PromptError, match="1 prompts are in both sets"):
        safety.ships_scores(refusal_probe, same, [*map(list, sets.harmless.ids), same[3]])
    text, lines = tmp_path / "a.txt", tmp_path / "b.jsonl"
    text.write_text("one\n\ntwo\n")
    assert safety.read_prompts(text) == ["one", "two"]
    lines.write_text('{"prompt": "x", "harmful": true}\n{"goal": [1, 2], "harmful": false}\n"y"\n')
    with pytest.raises(PromptError, match=r"line 3 does not say 'harmful'"):
        read_labelled(lines)
    lines.write_text('{"prompt": "x"}\n{"prompt": 3}\n{no\n')
    with pytest.raises(PromptError, match=r"line 2 holds 3, .*\(also bad: line 3\)"):
        safety.read_prompts(lines)
    lines.write_text('{"prompt": "x", "harmful": true}\n')
    with pytest.raises(PromptError, match="no harmless prompts"):
        read_labelled(lines)


def test_sahara_refuses_no_step_and_no_axis(refusal_probe, sets) -> None:
    for wrong in ({"rank": 0}, {"steps": 0}):
        with pytest.raises(OptionError, match="between 1 and"):
            safety.sahara(refusal_probe, sets.harmful, sets.harmless, **wrong)
