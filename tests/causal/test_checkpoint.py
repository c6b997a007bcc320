"""Checkpoints without some heads: equal to the ablated model in a process without interp."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest
import torch
import zoo
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

import interp
from interp.causal import repeats_task
from interp.causal.checkpoint.certificate import Judged
from interp.causal.checkpoint.choose import heads_by_name, ranked_heads
from interp.causal.checkpoint.probe import gated_edits
from interp.causal.checkpoint.save import save_pruned
from interp.causal.checkpoint.verify import verify_certificate
from interp.causal.gating.units import located_mlps
from interp.core.documents import seal
from interp.core.errors import InterpError, OptionError, StoreError, UnknownName
from interp.model import edits
from interp.model.calls.sites import softmax_sites
from interp.model.locate.probe import probe

SHARED = {"albert"}  # layers share their weights
OTHER_KERNEL = {"falcon_alibi"}  # its default kernel computes something else than eager
NO_PROJECTION = {"xlnet"}
NO_BIAS = "qwen2"
TEXT = [n for n, f in zoo.FAMILIES.items() if f.kind == "text" and "refused" not in f.features]
REFUSED = SHARED | OTHER_KERNEL | NO_PROJECTION
SMALLER = (
    "llama",
    "qwen2",
    "qwen2_sliding",
    "mistral_sliding",
    "qwen3",
    "mixtral",
    "qwen3_moe",
    "phi3",
    "cohere",
    "starcoder2",
    "granite",
    "smollm3",
    "gemma",
    "gemma2",
    "gemma3",
    "gpt_oss",
    "llama4_text",
    "phi",
    "jamba",
)
NOT_COMPACT = (
    "deepseek_v3",
    "deepseek_v32",
    "gpt_neox",
    "qwen3_next",
    "bloom",
    "codegen",
    "mpt",
    "mpnet",
    "deberta",
    "deberta_v2",
    "falcon_gqa",
)
EXPERTS = (
    "mixtral",
    "qwen3_moe",
    "gpt_oss",
    "deepseek_v3",
    "deepseek_v32",
    "llama4_text",
    "qwen3_next",
)
NORM_AFTER_MLP = ("olmo2", "gemma2", "gemma3")
SAVED = [n for n in TEXT if n not in REFUSED]
COMPACT = [n for n in SAVED if n not in NOT_COMPACT]
WITH_MLPS = [n for n in SAVED if n not in (*EXPERTS, *NORM_AFTER_MLP)]
LOADER = """
import json, sys
sys.modules["interp"] = None
import torch, transformers
transformers.utils.logging.set_verbosity_error()
from pathlib import Path
for folder in sorted(Path(sys.argv[1]).iterdir()):
    if not (folder / "config.json").exists():
        continue
    config = json.loads((folder / "config.json").read_text())
    auto = next(iter(config.get("auto_map", {})), None)
    name = auto or config["architectures"][0]
    cls, more = getattr(transformers, name), {"trust_remote_code": True} if auto else {}
    model = cls.from_pretrained(folder, **more).eval()
    with torch.no_grad():
        out = model(input_ids=torch.tensor(json.loads((folder / "ids").read_text())))
    torch.save(out.logits, folder / "logits")
    assert "interp" not in [m.partition(".")[0] for m in sys.modules if sys.modules[m] is not None]
"""


@cache
def family(name):
    one = zoo.FAMILIES[name]
    return probe(one.build(one.attentions[-1]), name)


def unequal(model):
    """All heads of the first kv group of the first softmax layer."""
    site = softmax_sites(model.sites)[0]
    return [f"L{site.layer}H{h}" for h in range(site.n_heads) if not site.kv_head(h)][:-1] or [
        f"L{site.layer}H0"
    ]


def first_groups(model):
    if model.n_kv_heads == 1:
        return [f"L{s.layer}H0" for s in model.sites]
    sites = softmax_sites(model.sites)
    return [f"L{s.layer}H{h}" for s in sites for h in range(s.n_heads) if s.kv_head(h) == 0]


def reloaded(folder):
    """Load every checkpoint of a folder where `import interp` fails."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment["HF_MODULES_CACHE"] = str(folder / ".modules")
    done = subprocess.run(
        [sys.executable, "-c", LOADER, str(folder)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@contextmanager
def without_mlps_by_hand(model, labels):
    """Zero the tensor that each MLP adds to the residual stream."""
    with ExitStack() as stack:
        for label in labels:
            module = model.module.get_submodule(dict(located_mlps(model))[label].module)
            stack.callback(module.register_forward_hook(lambda m, a, out: out * 0).remove)
        yield


def saved_and_compared(tmp_path, cases):
    """Save (family, form, heads, MLPs) and compare the logits of another process."""
    wanted = {}
    for number, (name, form, heads, *mlps) in enumerate(cases):
        model = family(name)
        folder = tmp_path / f"{name}-{form}-{number}"
        made = save_pruned(model, heads, folder, form=form, mlps=mlps)
        assert made.form == form
        ids = torch.randint(3, model.d_vocab, (2, 11), generator=torch.Generator().manual_seed(5))
        (folder / "ids").write_text(json.dumps(ids.tolist()))
        with torch.no_grad():
            with without_mlps_by_hand(model, mlps):
                edited = [edits.zero(heads)] if heads else []
                wanted[folder] = model.run({"input_ids": ids}, edited)
            whole = model.run({"input_ids": ids})
        assert float((wanted[folder] - whole).abs().max()) > 1e-3, name  # the heads do something
    reloaded(tmp_path)
    for folder, logits in wanted.items():
        found = torch.load(folder / "logits", weights_only=True)
        assert float((found - logits).abs().max()) <= 1e-5 * max(1, float(logits.abs().max()))


@pytest.mark.slow
def test_saved_models_equal_the_ablated_ones_without_interp(tmp_path):
    """Every family in every form that it has: heads, MLPs, and both."""
    last = {n: [located_mlps(family(n))[-1][0]] if n in WITH_MLPS else [] for n in SAVED}
    cases = [(n, "zeroed", unequal(family(n)), *last[n]) for n in SAVED]
    cases += [(n, "smaller", first_groups(family(n))) for n in SMALLER]
    cases += [(n, "compact", first_groups(family(n))[:2], *last[n]) for n in COMPACT]
    plain = {*NOT_COMPACT} & {*WITH_MLPS} - {"gpt_neox"}
    cases += [(n, "compact", [], *last[n]) for n in sorted(plain)]
    cases += [("llama", "smaller", first_groups(family("llama")), "L0MLP", "L1MLP", "L2MLP")]
    cases += [("modernbert", "compact", [], "L0MLP", "L2MLP")]
    # Falcon's heads share keys and values as rows of one matrix, which other heads still read
    falcon = (["L0H1"], ["L0H0", "L1H4"], ["L0H0", "L0H1", "L0H2"])
    cases += [("falcon_gqa", "zeroed", heads) for heads in falcon]
    saved_and_compared(tmp_path, cases)


@pytest.mark.slow
def test_mlps_that_are_not_plain_matrices_are_refused(tmp_path):
    for name in (*EXPERTS, *NORM_AFTER_MLP):
        last = located_mlps(family(name))[-1][0]
        with pytest.raises(OptionError, match="not a plain float matrix") as raised:
            save_pruned(family(name), [], tmp_path / "out", mlps=[last])
        assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_forms_that_a_family_lacks_are_refused_in_one_line(tmp_path):
    cases = [(n, "smaller", first_groups(family(n))) for n in SAVED if n not in SMALLER]
    cases += [(n, "compact", first_groups(family(n))[:2]) for n in NOT_COMPACT]
    for name, form, heads in cases:
        with pytest.raises(InterpError) as raised:
            save_pruned(family(name), heads, tmp_path / "out", form=form)
        assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_unsupported_families_are_refused_in_one_line_and_leave_nothing(tmp_path, name):
    model = family(name)
    with pytest.raises(InterpError) as raised:
        save_pruned(model, ["L0H1"], tmp_path / "out")
    assert "\n" not in str(raised.value)
    assert name in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_the_forms_are_as_small_as_they_say(tmp_path):
    model = family("llama")
    before = sum(p.numel() for p in model.module.parameters())
    site = model.sites[0]
    each = model.d_model * site.d_head  # of one head in one matrix
    out = save_pruned(model, first_groups(model), tmp_path / "smaller")
    assert out.form == "smaller"
    gone = 3 * (3 + 1 + 1 + 3) * each  # three layers: q, k, v, o of one group of three
    size = out.certificate["size"]
    assert size["before"]["parameters"] - size["after"]["parameters"] == gone
    assert size["after"]["cache_bytes_per_token"] * 2 == size["before"]["cache_bytes_per_token"]
    stored = load_file(tmp_path / "smaller/model.safetensors")
    assert sum(x.numel() for x in stored.values()) == before - gone
    config = json.loads((tmp_path / "smaller/config.json").read_text())
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (3, 1)
    assert config["head_dim"] == 8
    assert "auto_map" not in config
    zeroed = save_pruned(model, first_groups(model), tmp_path / "zeroed", form="zeroed")
    size = zeroed.certificate["size"]
    assert size["after"]["parameters"] == before
    assert size["before"]["nonzero_parameters"] - size["after"]["nonzero_parameters"] == gone


def test_auto_is_zeroed_where_the_config_cannot_express_the_sizes(tmp_path):
    out = save_pruned(family("llama"), ["L0H1"], tmp_path / "out")
    assert out.form == "zeroed"
    with pytest.raises(OptionError, match="different numbers of heads"):
        save_pruned(family("llama"), ["L0H1"], tmp_path / "other", form="smaller")


def test_a_size_that_the_config_refuses_falls_back(tmp_path, bundled_induction):
    heads = [f"L{layer}H{h}" for layer in (0, 1) for h in (0, 1)]  # 6 heads do not divide 128
    with pytest.raises(OptionError, match="not a multiple"):
        save_pruned(bundled_induction, heads, tmp_path / "one", form="smaller")
    assert save_pruned(bundled_induction, heads, tmp_path / "two").form == "zeroed"


def test_compact_keeps_zero_heads_in_an_empty_layer_and_in_smaller_groups(tmp_path):
    model = family("llama")
    heads = ["L0H1", "L0H2", "L0H5", *(f"L2H{h}" for h in range(6))]
    out = save_pruned(model, heads, tmp_path / "out", form="compact")
    assert out.certificate["notes"] == [
        "decoder.0 keeps one head of zeros",
        "decoder.2 keeps one head of zeros",
    ]
    # without the file in the folder it is refused, not filled with random numbers
    with pytest.raises(RuntimeError, match=r"size mismatch|mismatched"):
        LlamaForCausalLM.from_pretrained(tmp_path / "out")
    again = interp.load(tmp_path / "out", trust_remote_code=True)
    assert [s.n_heads for s in again.sites] == [4, 6, 1]
    assert [s.n_kv_heads for s in again.sites] == [2, 2, 1]


@pytest.mark.parametrize("name", ["gpt2", "llama", NO_BIAS])
def test_means_are_folded_where_the_class_has_a_bias_and_not_elsewhere(tmp_path, name):
    model = family(name)
    prompts = interp.repeats(model, n=4, max_length=8)
    heads = first_groups(model) if name != "gpt2" else ["L0H1", "L1H3"]
    out = save_pruned(model, heads, tmp_path / "out", kind="mean", reference=prompts)
    again = interp.load(tmp_path / "out")
    means = model.mean_z(prompts)
    removed = heads_by_name(model, heads)
    told = out.certificate["means"]
    if name == NO_BIAS:
        assert told.startswith("not folded")
        assert "Qwen2ForCausalLM" in told
        wanted = model.run(prompts, gated_edits(removed, None))
    else:
        assert told == "folded"
        wanted = model.run(prompts, gated_edits(removed, means))
    assert float((again.run(prompts) - wanted).detach().abs().max()) < 1e-4
    if name == "llama":  # by config, since a bias without it is dropped on reload
        assert json.loads((tmp_path / "out/config.json").read_text())["attention_bias"] is True


def test_a_certificate_holds_until_something_changes(tmp_path, bundled_induction):
    task = repeats_task(bundled_induction, n=6, max_length=12)
    heads = [f"L{layer}H{h}" for layer in (0, 1) for h in range(4)]
    folder = tmp_path / "out"
    made = save_pruned(
        bundled_induction,
        heads,
        folder,
        n_random=10,
        tasks=[Judged.of(task, 0)],
        source="bundled:induction",
    )
    told = made.certificate["tasks"][0]
    assert set(told["held_out"]) < set(range(6))
    assert told["after"]["value"] - told["before"]["value"] == pytest.approx(
        told["change"]["value"], abs=1e-6
    )
    good = verify_certificate(folder, tasks=[task])
    assert good.holds
    assert not any(x.startswith("tasks") for x in good.not_checked)
    assert good.checked > 50
    unknown = verify_certificate(folder)
    assert any("made in Python" in x for x in unknown.not_checked)
    file = folder / "certificate.json"
    kept = file.read_text()
    told = json.loads(kept)
    told["tasks"][0]["after"]["value"] *= 1.1
    file.write_text(json.dumps(told))
    with pytest.raises(StoreError, match="changed after it was written"):
        verify_certificate(folder, tasks=[task])
    file.write_text(json.dumps(seal(told)))  # as someone writes it who also computes the checksum
    text, line = verify_certificate(folder, tasks=[task]).differences
    assert "certificate.txt does not say what" in text
    assert "tasks[0].after.value" in line
    file.write_text(kept)
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    tensors["model.layers.0.mlp.up_proj.weight"][0, 0] += 1
    save_file(tensors, weights, {"format": "pt"})
    lines = "; ".join(verify_certificate(folder, tasks=[task]).differences)
    assert "model.safetensors" in lines
    assert "content_hash" in lines
    assert "model.layers.0.mlp.up_proj.weight is not that of the original" in lines
    assert "outputs" in lines
    with pytest.raises(OptionError, match="another model"):
        verify_certificate(folder, original=family("llama"))
    file.write_text("{}")
    with pytest.raises(StoreError, match="not a certificate"):
        verify_certificate(folder)


def test_bad_input_is_refused_before_anything_is_written(tmp_path):
    model = family("llama")
    everything = [f"L{layer}H{h}" for layer in range(3) for h in range(6)]
    (tmp_path / "there").mkdir()
    cases = [
        ((everything, "out"), {}, OptionError, "all 18 heads"),
        ((["L9H0"], "out"), {}, OptionError, "no head L9H0"),
        ((["L0H0"], "there"), {}, StoreError, "exists already"),
        ((["L0H0"], "out"), {"form": "tiny"}, UnknownName, "form"),
        ((["L0H0"], "out"), {"kind": "mean"}, OptionError, "reference"),
    ]
    for (heads, name), given, error, text in cases:
        with pytest.raises(error, match=text):
            save_pruned(model, heads, tmp_path / name, **given)
    for keep in (0, 18, 20):
        with pytest.raises(OptionError, match="keep at least 1"):
            ranked_heads(model, everything, keep)
    assert [p.name for p in Path(tmp_path).iterdir()] == ["there"]


def test_quantised_models_are_refused(tmp_path):
    model = probe(zoo.FAMILIES["llama"].build("sdpa"), "quantised")
    model.config.quantization_config = {"bits": 4}
    with pytest.raises(OptionError, match="quantised"):
        save_pruned(model, ["L0H0"], tmp_path / "out")


def test_tied_embeddings_stay_tied(tmp_path):
    model = family("gpt2")
    save_pruned(model, ["L0H0"], tmp_path / "out")
    again = interp.load(tmp_path / "out").module
    assert again.lm_head.weight.data_ptr() == again.transformer.wte.weight.data_ptr()
