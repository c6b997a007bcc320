"""Named heads: planted truths, models that cannot do the task, and every file of the group."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from circuits.counting import counting
from circuits.speller import speller
from scipy.stats import t as student
from transformers import LlamaConfig, LlamaForCausalLM

import interp
from interp.circuits.named._inhibition import _lost, _other_words
from interp.circuits.named._on_text import equal_tokens
from interp.circuits.named._ordered import LISTS, first_mlp, known_lists
from interp.circuits.named._task import effects, mean_effect, tried
from interp.circuits.tasks import make_contrast
from interp.core.errors import OptionError
from interp.core.registry import METRICS
from interp.core.resources import folder
from interp.heads.trials import Lab
from interp.lens import direct_logit_attribution
from interp.lens.direct_effects import LogitRead, against, difference, direct_effects

NAMED = sorted(name for name, entry in METRICS.items() if entry.group == "roles")
NULL_LAB = Lab(0, lambda *x: None, notes=False)  # the model need not be able to do the task
ON_TEXT = ("duplicate_token_text", "previous_token_text")
OTHER = {
    "pairs": 30,
    "sentences": 60,
    "task": "ioi",
    "residual": True,
    "least": 8,
    "max_length": 20,
    "relation": "obj",
}
FEWER = {"pairs": 8, "rows": 3, "trials": 8, "prompts": 10, "movers": 1, "max_length": 24}


@pytest.fixture(scope="module")
def spelling_model() -> interp.Model:
    """A random model that knows every word of the tasks."""
    tokenizer = speller()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        bos_token_id=0,
        eos_token_id=None,
        marker_token_id=7,
        refusal_token_ids=[9],
    )
    torch.manual_seed(3)
    module = LlamaForCausalLM(config).eval()
    return interp.load(module, tokenizer=tokenizer, name="spelling")


@pytest.fixture(scope="module")
def counting_model() -> interp.Model:
    return counting()


def test_an_ideal_head_on_earlier_copies_has_all_of_its_attention_on_the_keys() -> None:
    rng, rows = np.random.default_rng(2), 0
    for _ in range(50):
        ids = tuple(rng.choice(6, 30, p=[0.5, 0.2, 0.1, 0.1, 0.05, 0.05]).tolist())
        for row in range(1, len(ids)):
            found = equal_tokens(ids, row, rng)
            if found is None:
                continue
            keys, others = found
            copies = [at for at in range(row) if ids[at] == ids[row]]
            assert keys == copies  # even attention to the copies is all on the keys
            assert len(others) == len(set(others)) == len(keys)
            assert 0 not in others
            assert not set(others) & set(copies)
            assert max(others) < row
            rows += 1
    assert rows > 200
    # four copies, and other tokens with two and three: the nearest in number, then the next
    assert equal_tokens((9, 1, 1, 1, 1, 2, 2, 3, 3, 3, 1), 10, rng) == ([1, 2, 3, 4], [7, 8, 9, 6])
    assert equal_tokens((9, 1, 1, 1, 2, 1), 5, rng) is None  # one other token for three copies
    assert equal_tokens((1, 2, 1, 2, 1), 4, rng) is None  # the text's first token


@pytest.fixture(scope="module")
def random_model(spelling_model, counting_model, llama_model, texted_llama):
    """The random model that a named head can be looked for in, by the metric's name."""
    texts = ("duplicate_token_text", "previous_token_text", "dependency_relation")
    own = {"successor": counting_model, "copy_suppression": llama_model}
    return own | dict.fromkeys(texts, texted_llama), spelling_model


@pytest.fixture(scope="module")
def zoo() -> interp.Model:
    return interp.load("planted:zoo")


def by_head(table: interp.HeadTable) -> Any:
    frame = table.to_pandas()
    return frame.set_index("L" + frame["layer"].astype(str) + "H" + frame["head"].astype(str))


# --- direct effects -----------------------------------------------------------------------------


def test_direct_effects_equal_direct_logit_attribution(llama_model) -> None:
    rng = np.random.default_rng(0)
    ids = [tuple(rng.integers(2, llama_model.d_vocab, n).tolist()) for n in (9, 6, 9, 6)]
    reads = [LogitRead(i, len(p) - 1) for i, p in enumerate(ids)]
    every = [LogitRead(i, len(p) - 1, tuple(range(len(p)))) for i, p in enumerate(ids)]
    size = llama_model.d_vocab
    found = direct_effects(llama_model, ids, reads + every, lambda k: difference(5, 7, size))
    for i, prompt in enumerate(ids):
        one = direct_logit_attribution(llama_model, [prompt], 5, contrast=7).table.to_pandas()
        for read in (i, i + len(ids)):  # all keys together are the whole output
            mine = torch.cat([x[read] for x in found.values()]).numpy()
            np.testing.assert_allclose(mine, one["score"], atol=1e-6)


def test_the_parts_through_single_keys_sum_to_the_effect(llama_model) -> None:
    ids = [(3, 9, 4, 8, 5)]
    reads = [LogitRead(0, 3), *(LogitRead(0, 3, (key,)) for key in range(4))]
    found = direct_effects(
        llama_model, ids, reads, lambda k: against(5, [2, 3, 4], llama_model.d_vocab)
    )
    for x in found.values():
        rounding = 1e-6 * float(x.abs().sum(0).max())  # of the numbers that are added
        torch.testing.assert_close(x[0], x[1:].sum(0), atol=rounding, rtol=0)


# --- planted heads ------------------------------------------------------------------------------


def test_the_head_that_writes_the_answer_has_its_logit_and_the_bystander_none() -> None:
    """A planted copy writes a logit of 10; the bystander attends alike and is never read."""
    model = interp.load("planted:bystander")
    table = by_head(interp.score(model, "direct_effect", null="none"))
    assert table.loc["L1H0", "score"] == pytest.approx(10, abs=0.05)
    assert table["score"].drop("L1H0").abs().max() < 0.05


def test_copy_suppression_takes_half_of_what_is_predicted(zoo) -> None:
    model = interp.load("planted:copy_suppression")
    table = interp.score(model, "copy_suppression:predicted=1")
    frame: Any = table.to_pandas().sort_values("score", ascending=False)
    assert frame["score"].iloc[0] == pytest.approx(5, abs=1e-3)  # half of a logit of 10
    assert frame["score"].iloc[1:].abs().max() < 0.05
    assert abs(frame["null"].iloc[0]) < 1e-3
    lowered = by_head(interp.score(zoo, "anti_induction", null="none"))["score"]
    assert lowered.idxmax() == "L3H3"
    assert lowered.max() == pytest.approx(5, abs=1e-3)
    assert lowered.min() == pytest.approx(-10, abs=0.05)  # the induction head itself


def test_the_suppressor_is_the_lowest_direct_effect(zoo) -> None:
    frame = by_head(interp.score(zoo, "direct_effect", null="none"))["score"]
    assert frame.idxmin() == "L3H3"
    assert frame["L3H3"] == pytest.approx(-5, abs=0.05)


def test_a_planted_successor_head_is_found(counting_model) -> None:
    """A head whose OV circuit maps every item to the unembedding of the next one."""
    tokenizer = counting_model.tokenizer
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=len(tokenizer),
        intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=1,
        head_dim=512,
        bos_token_id=0,
        eos_token_id=None,
    )
    torch.manual_seed(3)
    module: Any = LlamaForCausalLM(config).eval()
    lists = known_lists(counting_model, 5)
    assert set(lists) == set(LISTS)
    size = len(tokenizer)
    with torch.no_grad():
        module.model.embed_tokens.weight.copy_(torch.eye(size))
        module.lm_head.weight.copy_(torch.eye(size))
        attention = module.model.layers[1].self_attn
        value, output = torch.zeros(512, size), torch.zeros(size, 512)
        slot = 0
        for ids, after in lists.values():
            for item, following in after:
                value[slot, ids[item]] = 1
                output[ids[following], slot] = 1
                slot += 1
        assert slot <= 512
        attention.v_proj.weight.copy_(value)
        attention.o_proj.weight.copy_(output)
        for layer in module.model.layers:
            layer.mlp.down_proj.weight.zero_()
    model = interp.load(module, tokenizer=tokenizer, name="counting")
    found = METRICS.load("successor").bind(residual=True).experiment(model, 0, lambda *x: None)
    planted, other = (found.values[site] for site in (model.sites[1], model.sites[0]))
    assert (planted == 1).all()
    assert other.mean() < 0.2
    assert found.null is not None
    assert found.null[model.sites[1]].max() == 0  # never a wrong successor


# --- models that cannot do the task -------------------------------------------------------------


@pytest.mark.parametrize("name", ["name_mover", "negative_name_mover", "s_inhibition"])
def test_a_model_that_cannot_do_the_task_has_no_scores_and_a_reason(name, spelling_model) -> None:
    table: Any = interp.score(spelling_model, name)
    [made] = table.provenance.values()
    assert made["headline"].startswith("no scores: the model ")
    frame: Any = table.to_pandas()
    assert (frame["n"] == 0).all()


def test_words_that_the_tokenizer_splits_are_a_reason() -> None:
    tokenizer = speller(names=False)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        bos_token_id=0,
        eos_token_id=None,
    )
    model = interp.load(LlamaForCausalLM(config).eval(), tokenizer=tokenizer, name="nameless")
    [made] = interp.score(model, "name_mover").provenance.values()
    assert "splits (or does not know)" in made["headline"]


def test_wrong_options_are_refused(llama_model, spelling_model) -> None:
    for metric in ("direct_effect:pairs=1", "anti_induction:rows=0", "copy_suppression:prompts=1"):
        with pytest.raises(OptionError, match="at least"):
            interp.score(llama_model, metric)
    for metric in ("s_inhibition:movers=0", "successor:least=2"):
        with pytest.raises(OptionError, match="at least"):
            interp.score(spelling_model, metric)


# --- S-inhibition -------------------------------------------------------------------------------


def test_lost_attention_equals_a_replacement_by_hand(spelling_model) -> None:
    model = spelling_model
    given = tried(model, make_contrast(model, "ioi", n=8, seed=0))
    [(_, site, head), *_] = [
        x for x in mean_effect(effects(model, given, given.task.clean)) if x[1].layer == 1
    ]
    others, _ = _other_words(model, given.task, 0)
    values, null = _lost(model, NULL_LAB, given.task, [(site, head)], others)
    first, last = (next(s for s in model.sites if s.layer == layer) for layer in (0, 1))
    assert values[last].isnan().all()  # the movers' own layer cannot reach them
    assert float(values[first].abs().max()) > 1e-6
    assert float(null[first].abs().max()) > 1e-6

    def preference(ids: tuple[int, ...], at: dict[str, int]) -> float:
        row = model.capture([ids], ("pattern",), layers=1)["pattern", 1][0, head, at["end"]]
        return float(row[at["IO"]] - row[at["S1"]] - row[at["S2"]])

    width = 32 // 4
    for pair in (0, 3):
        clean, corrupted = given.task.clean.ids[pair], given.task.corrupted.ids[pair]
        at = dict(given.task.roles[pair])
        projection = model.module.model.layers[0].self_attn.o_proj
        held = []
        hook = projection.register_forward_pre_hook(lambda m, x, held=held: held.append(x[0]))
        model.run([corrupted])
        hook.remove()

        def replaced(module, x, at=at, held=held):
            z = x[0].clone()
            z[:, at["end"], 2 * width : 3 * width] = held[0][:, at["end"], 2 * width : 3 * width]
            return (z,)

        plain = preference(clean, at)
        hook = projection.register_forward_pre_hook(replaced)
        now = preference(clean, at)
        hook.remove()
        assert float(values[first][pair, 2]) == pytest.approx(plain - now, abs=1e-6)


# --- every file of the group --------------------------------------------------------------------


def trials(name: str, model: interp.Model, **options):
    fewer = {k: v for k, v in FEWER.items() if k in METRICS[name].options}
    return (
        METRICS.load(name)
        .bind(**(fewer | options))
        .experiment(model, 0, NULL_LAB.progress, notes=False)
    )


@pytest.mark.parametrize("name", NAMED)
def test_scores_of_a_random_model_equal_their_null(name, random_model) -> None:
    """Finite scores for every head; no paired t test over the few prompts has p below 1e-5.

    On text a random head prefers some tokens to others, and texts share tokens: there the gap is
    small, and only random weights tell that it is nothing.
    """
    own, usual = random_model
    model = own.get(name, usual)
    found = trials(name, model)
    for site in model.sites:
        values, null = found.values[site], found.null[site]
        assert values.shape[1] == site.n_heads
        kept = values.isfinite().all(1) & null.isfinite().all(1)
        if name == "s_inhibition" and site is model.sites[-1]:
            assert not kept.any()  # heads that cannot reach the movers
            continue
        assert kept.any()
        gap = (values - null)[kept]
        error = gap.std(0) / len(gap) ** 0.5
        wide = float(student.ppf(1 - 0.5e-5, len(gap) - 1))
        near = 0.03 if name in ON_TEXT else wide * error + 1e-9
        assert (gap.mean(0).abs() <= near).all(), (name, gap.mean(0), error)


@pytest.fixture(scope="module")
def default_scores(random_model):
    """Scores of the random models without options, made once for each name."""
    own, usual = random_model

    @cache
    def of(name: str):
        analysis = METRICS.load(name).bind()
        return analysis.experiment(own.get(name, usual), 0, NULL_LAB.progress, notes=False)

    return of


@pytest.mark.slow
@pytest.mark.parametrize(("name", "option"), [(n, o) for n in NAMED for o in METRICS[n].options])
def test_every_option_changes_the_scores(
    name, option, random_model, default_scores, tmp_path
) -> None:
    own, usual = random_model
    model = own.get(name, usual)
    default = METRICS.load(name).options[option].default
    if option == "file":  # the second half of the treebank
        sentences = (folder("data") / "treebank.conllu").read_text(encoding="utf-8").split("\n\n")
        other = str(tmp_path / "half.conllu")
        Path(other).write_text("\n\n".join(sentences[len(sentences) // 2 :]), encoding="utf-8")
    else:
        other = OTHER.get(option, default + 1 if isinstance(default, int) else None)
    whole = default_scores(name)
    changed = METRICS.load(name).bind(**{option: other})
    found = changed.experiment(model, 0, NULL_LAB.progress, notes=False)
    site = model.sites[0]
    a, b = whole.values[site], found.values[site]
    assert a.shape != b.shape or not torch.allclose(a, b, atol=1e-12, equal_nan=True)


def test_lists_have_no_item_twice() -> None:
    assert all(len(set(words)) == len(words) for words, _ in LISTS.values())


def test_the_first_mlp_is_read_without_attention(spelling_model) -> None:
    """By hand: the MLP of the embedding alone, since the ablated heads add nothing."""
    ids = [5, 9, 12]
    layer = spelling_model.module.model.layers[0]
    with torch.no_grad():
        x = spelling_model.module.model.embed_tokens.weight[ids]
        wanted = layer.mlp(layer.post_attention_layernorm(x))
    found = first_mlp(spelling_model, ids, residual=False)
    torch.testing.assert_close(found["decoder"], wanted, atol=1e-6, rtol=1e-5)
    both = first_mlp(spelling_model, ids, residual=True)["decoder"]
    torch.testing.assert_close(both, wanted + x, atol=1e-6, rtol=1e-5)
