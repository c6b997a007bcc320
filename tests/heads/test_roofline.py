"""Operations and bytes against counts by hand, and the limit that binds."""

from __future__ import annotations

import re

import pytest

import interp
from interp.core.errors import OptionError, PromptError
from interp.heads.machine_limits import Machine, roofline
from training import forms

EVEN = Machine(1.0, 1.0, "given")


def small() -> interp.Model:
    """Two layers of two heads of width 4, d_model 8, without MLPs; 20 tokens."""
    module = forms.build(
        "plain_softmax", vocab_size=20, hidden_size=8, num_attention_heads=2, mlp=False
    )
    return interp.load(module, name="small")


def test_operations_and_bytes_by_hand() -> None:
    model, n = small(), 5
    found = roofline(model, [[5, 6, 7, 8, 9]], ["entropy"], machine=EVEN).wide()
    rows = found.set_index(["stage", "part"])
    weights = 2 * 4 * 8 * 8 + 8 * 20  # four matrices of each layer, and the unembedding
    assert rows.loc[("pass", "parameters"), "operations"] == 2 * weights * n
    assert rows.loc[("pass", "parameters"), "bytes"] == 4 * weights
    pairs = 2 * 2 * n * (n + 1) / 2  # layers, heads, visible keys
    assert rows.loc[("pass", "attention"), "operations"] == pairs * (2 * 4 + 2 * 4 + 5)
    assert rows.loc[("pass", "attention"), "bytes"] == 2 * n * (2 + 2) * (4 + 4) * 4
    assert rows.loc[("pass", "statistics"), "operations"] == 2 * pairs
    assert rows.loc[("decode", "parameters"), "operations"] == 2 * weights
    assert rows.loc[("decode", "attention"), "operations"] == 2 * 2 * n * (2 * 4 + 2 * 4 + 5)
    assert rows.loc[("decode", "attention"), "bytes"] == 2 * 2 * n * 8 * 4
    assert rows.loc[("pass", "attention"), "score"] == max(
        rows.loc[("pass", "attention"), ["operations", "bytes"]]
    )


def test_the_limit_follows_the_machine_and_the_length() -> None:
    model, prompt = small(), [[5] * 30]
    assert roofline(model, prompt, machine="1,1000000").binds["pass"] == "operations"
    assert roofline(model, prompt, machine="1000000,1").binds["pass"] == "bytes"
    # a token on its own reads all weights for two operations each: bytes bind on any real card
    assert roofline(model, prompt, machine="989000,3350").binds["decode"] == "bytes"
    shares = [
        roofline(model, [[5] * n], machine=EVEN).shares["decode"]["attention"] for n in (10, 200)
    ]
    assert shares[0] < 0.5 < shares[1]  # attention overtakes the parameters with the length
    stored = roofline(model, prompt, ["entropy"], engine="stored", machine=EVEN)
    streamed = roofline(model, prompt, ["entropy"], engine="streamed", machine=EVEN)
    entries = 2 * 2 * 30 * 31 / 2
    assert stored.totals["pass"][1] - streamed.totals["pass"][1] == entries * 4 * 2
    assert stored.totals["pass"][0] == streamed.totals["pass"][0]


def test_a_pass_takes_as_long_as_the_slower_of_both(loaded) -> None:
    found = roofline(small(), [[5] * 30], machine=Machine(2.0, 3.0, "given"))
    for stage in ("pass", "decode"):
        done, moved = found.totals[stage]
        assert found.seconds[stage] == max(done / 2, moved / 3)
    model = loaded("llama")  # several heads share keys and values, which are read once
    site = model.site(0)
    assert site.n_kv_heads < site.n_heads
    rows = roofline(model, [[5, 6, 7]], machine=EVEN).wide().set_index(["stage", "part"])
    read = len(model.sites) * site.n_kv_heads * 3 * (site.d_head + site.d_v) * 4
    assert rows.loc[("decode", "attention"), "bytes"] == read


def test_this_machine_is_measured() -> None:
    found = Machine.measured("cpu", small().dtype)
    assert 1e8 < found.operations < 1e15
    assert 1e8 < found.bandwidth < 1e13


def test_rates_that_are_none_and_images_are_refused(loaded) -> None:
    for text in ("fast", "1", "1,2,3", "0,1", "1,-1", "inf,1", "nan,1"):
        with pytest.raises(OptionError, match="GFLOP/s,GB/s"):
            Machine.parse(text)
    with pytest.raises(PromptError, match="does not read tokens"):
        roofline(loaded("vit"), [[1, 2]])


def test_the_dry_run_names_the_limit(run, errors, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ("score", "bundled:one-layer", "-m", "entropy,induction", "--dry-run")
    text = run(*asked, "--set", "machine=1,1000000").stdout
    assert re.search(
        r"limit +operations: [\d.]+ operations per byte, where the machine \(given: 1 GFLOP/s,"
        r" 1e\+06 GB/s\)",
        text,
    )
    assert re.search(r"work +[\d.e+]+ operations \(parameters [\d.]+ %, attention", text)
    assert "limit     bytes" in run(*asked, "--set", "machine=1000000,1").stdout
    assert "measured on cpu" in run(*asked).stdout
    assert errors(*asked, "--set", "machine=fast")[0] == 2
    code, told = errors("score", "bundled:one-layer", "-m", "entropy", "--set", "machine=1,1")
    assert code == 2
    assert "machine is for --dry-run" in told[0]
