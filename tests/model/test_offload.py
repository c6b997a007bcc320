"""Models whose weights are read from their files as they run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import zoo
from safetensors.torch import load_file, save_file
from together import over

import interp
from interp.causal import all_but_one, gate_gradient, leave_one_out, repeats_task
from interp.core.errors import InterpError, LoadError, OptionError
from interp.lens import logit_lens
from interp.model import offload
from interp.model.identity import identity_of
from interp.model.streamed import Streamed, streamed_weights
from interp.profiles import first_look

IDS = [[(7 * i + 3 * j) % 50 + 4 for j in range(12)] for i in range(10)]
INDEX = "model.safetensors.index.json"


def weights(model: interp.Model) -> Streamed:
    found = streamed_weights(model.module)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with a tokenizer in several shards."""
    made = tmp_path_factory.mktemp("sharded")
    source = interp.load("bundled:induction")
    module: Any = source.module
    module.save_pretrained(made, max_shard_size="200KB")
    source.tokenizer.save_pretrained(made)
    return made


@pytest.fixture(scope="module")
def plain(sharded: Path) -> interp.Model:
    return interp.load(sharded)


@pytest.fixture(scope="module")
def streamed(sharded: Path) -> interp.Model:
    return interp.load(sharded, offload=True)


@pytest.fixture
def copied(sharded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sharded, tmp_path / "copied"))


def change(folder: Path, **fields: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def test_all_that_identifies_a_run_is_that_of_the_plain_model(
    plain: interp.Model, streamed: interp.Model
) -> None:
    assert identity_of(streamed) == identity_of(plain)
    assert streamed.sites == plain.sites
    assert repr(streamed) == repr(plain)
    assert len(list(Path(streamed.config.name_or_path).glob("*.safetensors"))) > 1


def test_scores_and_their_nulls_are_those_of_the_plain_model(
    plain: interp.Model, streamed: interp.Model
) -> None:
    tables = [
        interp.score(m, None, IDS, null_cache=False, null_draws=2, batch_size=4).to_pandas()
        for m in (plain, streamed)
    ]
    assert tables[0].equals(tables[1])


def test_a_score_reads_the_weights_once(streamed: interp.Model) -> None:
    _ = streamed.content_hash, streamed.padding.way("right", 9)  # found before the count
    held = weights(streamed)
    held.made = [0] * len(held.parts)
    interp.score(streamed, ["induction", "entropy"], IDS, null="none", batch_size=2)
    assert max(held.made) == 1
    assert not held.present


def frame(result: Any) -> Any:
    return result.to_pandas()


ROOMS = {
    "pattern": lambda m: m.capture(IDS[:2])["pattern", 1],
    "stream": lambda m: m.capture(IDS[:2], ("resid_post",))["resid_post", 1],
    "logits": lambda m: m.run(IDS),
    "mean": lambda m: m.mean_z(IDS, 4)["decoder", 1],
    "generated": lambda m: m.generate(IDS[:1], 3).ids,
    "weights": lambda m: m.weights_of(m.sites[1]).folded.W_Q,
    "lens": lambda m: frame(logit_lens(m, IDS[0])),
    "rollout": lambda m: frame(interp.attribute(m, IDS[:1], "rollout")),
    "gradient": lambda m: frame(interp.attribute(m, IDS[:1], "gradient_x_input")),
    "gates": lambda m: frame(gate_gradient(m, repeats_task(m, n=4), null="none")),
    "ablation": lambda m: frame(leave_one_out(m, repeats_task(m, n=4))),
    "all but one": lambda m: frame(all_but_one(m, repeats_task(m, n=2), null="none")),
    "profile": lambda m: frame(interp.profile(m, STORIES, **FEW)),
}
FEW: Any = {"n_documents": 8, "n_ablation_documents": 8, "n_ablated": 2}
WORDS = ["one", "day", "a", "girl", "found", "her", "red", "ball", "in", "the", "old", "park", "."]
STORIES = [" ".join(WORDS[(i * j + j // 7) % len(WORDS)] for j in range(40)) for i in range(1, 12)]


@over("name", list(ROOMS))
def test_other_rooms_give_the_numbers_of_the_plain_model(
    plain: interp.Model, streamed: interp.Model, name: str
) -> None:
    one, other = ROOMS[name](plain), ROOMS[name](streamed)
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    else:
        assert one.equals(other)
    assert streamed_weights(streamed.module) is not None


def reads(model: interp.Model, run: Callable[[], Any]) -> int:
    """How often a run reads the part that it reads most often."""
    held = weights(model)
    held.made = [0] * len(held.parts)
    run()
    return max(held.made)


def test_batches_and_documents_share_a_read(
    streamed: interp.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ = streamed.content_hash, streamed.padding.way("right", 9)  # found before the count
    assert reads(streamed, lambda: streamed.mean_z(IDS, 2)) == 1

    def profile() -> Any:
        return interp.profile(streamed, STORIES, n_documents=8, effects=False)

    monkeypatch.setattr(first_look, "GROUPS", 2)  # of documents: one to describe, one to judge
    together = reads(streamed, profile)
    monkeypatch.setattr(first_look, "GROUPS", 16)
    assert reads(streamed, profile) - together >= 6


def test_no_more_than_the_largest_part_is_in_memory(streamed: interp.Model) -> None:
    held, make, most = weights(streamed), weights(streamed).make, 0
    sizes = dict(zip((part.name for part in held.parts), held.bytes, strict=True))

    def checked(part: Any) -> Any:
        nonlocal most
        there = sum(x.nbytes for made in held.present.values() for x in made.values())
        most = max(most, there + sizes[part.name])
        return make(part)

    held.make = checked
    try:
        interp.score(streamed, "entropy", IDS, null="none", batch_size=2)
        streamed.run(IDS).sum()
    finally:
        held.make = make
    assert 0 < most <= max(held.bytes) < sum(held.bytes) / 3


def require_equal(family: zoo.Family, folder: Path) -> None:
    attention = family.attentions[0]
    module: Any = family.build(attention)
    module.save_pretrained(folder, max_shard_size="50KB")
    options: dict[str, Any] = {"check": False, "attention": attention}
    plain, streamed = (interp.load(folder, offload=x, **options) for x in (False, True))
    given = family.inputs()
    with torch.no_grad():
        outputs = [zoo.output(m.module(**given)) for m in (plain, streamed)]
    assert torch.equal(*outputs)
    assert identity_of(plain) == identity_of(streamed)
    assert plain.sites == streamed.sites


@over("name", ["gpt2", "mixtral", "t5", "marian"])
def test_a_family_runs_from_its_files(name: str, tmp_path_factory: Any) -> None:
    """Tied tensors, experts that are merged on loading, and tables that are not saved."""
    require_equal(zoo.FAMILIES[name], tmp_path_factory.mktemp(name))


UNREAD = ("fnet", "squeezebert", "yoso")  # their attention is not read


@pytest.mark.slow
@over("name", [name for name in zoo.FAMILIES if name not in UNREAD])
def test_every_family_runs_from_its_files(name: str, tmp_path_factory: Any) -> None:
    require_equal(zoo.FAMILIES[name], tmp_path_factory.mktemp(name))


@over("dtype", ["bfloat16", "float16", "float64"])
def test_another_data_type_is_that_of_the_plain_model(sharded: Path, dtype: str) -> None:
    one, other = (interp.load(sharded, dtype=dtype, offload=x) for x in (False, True))
    assert torch.equal(one.run(IDS), other.run(IDS))
    assert one.content_hash == other.content_hash


def refused(folder: Path, **options: Any) -> str:
    with pytest.raises(InterpError) as found:
        interp.load(folder, offload=True, **options)
    assert "\n" not in str(found.value)
    return str(found.value)


def test_a_lacking_shard_is_named(copied: Path) -> None:
    shard = sorted(copied.glob("*.safetensors"))[1]
    shard.unlink()
    assert f"lacks 1 of {len(list(copied.glob('*.safetensors'))) + 1}" in refused(copied)


def test_a_shard_that_goes_later_is_named(copied: Path) -> None:
    model = interp.load(copied, offload=True)
    before = model.run(IDS[:1])
    shard = max(copied.glob("*.safetensors"))
    moved = shard.rename(copied / "moved")
    with pytest.raises(LoadError, match=r"cannot be read any more .* must stay as they are"):
        model.run(IDS[:1])
    moved.rename(shard)
    assert torch.equal(model.run(IDS[:1]), before)


def test_a_damaged_shard_is_named(copied: Path) -> None:
    shard = min(copied.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-10])
    assert "damaged or cut short" in refused(copied)


def test_more_layers_than_stored_are_refused(copied: Path) -> None:
    change(copied, num_hidden_layers=3)
    assert "lacks 9 tensors of LlamaForCausalLM (model.layers.2." in refused(copied)


def test_fewer_layers_than_stored_are_refused(copied: Path) -> None:
    change(copied, num_hidden_layers=1)
    assert "9 tensors that LlamaForCausalLM does not use" in refused(copied)


def test_other_widths_are_refused(copied: Path) -> None:
    change(copied, intermediate_size=64)
    assert "do not have the config's shapes" in refused(copied)


def test_packed_weights_are_refused(copied: Path) -> None:
    change(copied, quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True})
    assert "packed weights (quantization_config)" in refused(copied)


def tie(folder: Path, *, equal: bool) -> None:
    """State tied embeddings, with a tensor of each name in shards of its own."""
    change(folder, tie_word_embeddings=True)
    index = json.loads((folder / INDEX).read_text())
    names = ("model.embed_tokens.weight", "lm_head.weight")
    first = load_file(folder / index["weight_map"][names[0]])[names[0]]
    for name in names:
        file = folder / index["weight_map"][name]
        tensors = {k: x for k, x in load_file(file).items() if k not in names}
        save_file(tensors or {"model.norm.weight": torch.ones(128)}, file)
        own = f"{name}.safetensors"
        save_file({name: first if equal or name == names[0] else first + 1}, folder / own)
        index["weight_map"][name] = own
    (folder / INDEX).write_text(json.dumps(index))


def test_tied_embeddings_may_lie_in_two_shards(copied: Path) -> None:
    tie(copied, equal=True)
    one, other = (interp.load(copied, offload=x) for x in (False, True))
    assert torch.equal(one.run(IDS), other.run(IDS))
    module: Any = other.module
    assert module.lm_head.weight is module.model.embed_tokens.weight


def test_tied_embeddings_that_differ_are_refused(copied: Path) -> None:
    tie(copied, equal=False)
    assert "ties lm_head.weight to model.embed_tokens.weight" in refused(copied)


def test_a_part_larger_than_memory_is_refused(
    sharded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offload, "available_bytes", lambda: 1000)
    assert "its largest part (model.layers.0.mlp) takes" in refused(sharded)


@over(
    ("options", "said"),
    [({"device_map": "auto"}, "device_map and offload"), ({"tp_plan": "auto"}, "tp_plan and")],
)
def test_other_placements_do_not_combine(sharded: Path, options: Any, said: str) -> None:
    assert said in refused(sharded, **options)


def test_models_that_are_loaded_are_refused(plain: interp.Model) -> None:
    for source in (plain.module, "planted:induction"):
        with pytest.raises(LoadError, match="offload cannot be chosen for a model that is"):
            interp.load(source, offload=True)


def test_copies_and_state_dicts_are_refused(streamed: interp.Model) -> None:
    import copy

    with pytest.raises(OptionError, match=r"changes a copy of the model.*without offload"):
        copy.deepcopy(streamed.module)
    with pytest.raises(LoadError, match="cannot be copied or saved as a whole"):
        streamed.module.state_dict()


def test_nothing_is_written(sharded: Path, streamed: interp.Model) -> None:
    before = {file: file.stat().st_mtime_ns for file in sharded.iterdir()}
    streamed.run(IDS[:1])
    assert before == {file: file.stat().st_mtime_ns for file in sharded.iterdir()}


def test_the_command_reads_a_model_from_its_files(sharded: Path) -> None:
    from click.testing import CliRunner

    from interp.cli.main import main

    given = ["score", str(sharded), "-m", "induction", "--null", "none", "--csv"]
    told = [CliRunner().invoke(main, [*given, *more]) for more in ([], ["--offload"])]
    assert told[0].exit_code == told[1].exit_code == 0, told[1].output
    assert told[0].stdout == told[1].stdout
    for more, says in (((), False), (("--offload",), True)):
        plan = CliRunner().invoke(main, [*given[:-1], "--dry-run", *more])
        assert plan.exit_code == 0
        assert ("the weights stay in their files" in plan.stdout) == says
