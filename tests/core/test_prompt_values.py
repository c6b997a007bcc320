"""Values per prompt: kept beside every result, read lazily, and used by bootstrap and clusters."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from core.examples import small

from interp.core.clusters import PromptValues, effective_number
from interp.core.errors import StoreError
from interp.core.merge import renamed
from interp.core.prompt_values import (
    COLUMNS,
    by_cluster,
    effective_numbers,
    read_values,
    values_file,
    values_to_pandas,
)
from interp.core.store import Key, Store

SITES = {
    ("decoder", 0): np.arange(8.0).reshape(4, 2),
    ("decoder", 1): -np.arange(8.0).reshape(4, 2),
}
LABELS = ("period 2", "period 3", "period 2", "period 3")
IDS = ("a", "b", "c", "a")  # a prompt may be given twice


def key(metric="induction", model="tiny", weights="ab12", **settings):
    return Key(model, weights, metric, settings)


def table(metric="induction", model="tiny", sites=SITES, labels=LABELS):
    found = small(model, metric)
    return found.with_prompt_values({(model, metric): PromptValues(sites, labels, IDS)})


def test_a_stored_result_has_its_values_again(tmp_path):
    Store(tmp_path).write(key(), table())
    found = Store(tmp_path).find(key())
    assert found == table(), "equality is that of the rows"
    assert found.per_prompt.tolist() == table().per_prompt.tolist()
    assert found.per_prompt.shape == (4, 4)
    assert (found.clusters, found.prompt_ids) == (LABELS, IDS)
    both = Store(tmp_path).read()
    assert both["induction"].per_prompt.tolist() == table().per_prompt.tolist()


def test_values_are_float32_with_a_row_per_head_and_prompt(tmp_path):
    third = {("decoder", 0): np.full((4, 2), 1 / 3), ("decoder", 1): np.full((4, 2), np.nan)}
    path = Store(tmp_path).write(key(), table(sites=third))
    frame = values_to_pandas([read_values(values_file(path), "")])
    assert list(frame.columns) == list(COLUMNS)
    assert len(frame) == 2 * 2 * 4
    assert frame["value"].dtype == np.float32
    assert frame["value"].tolist()[:8] == [float(np.float32(1 / 3))] * 8
    assert frame["value"][8:].isna().all()
    row = frame.iloc[5]
    assert (row["layer"], row["head"], row["prompt"]) == (0, 1, 1)
    assert (row["prompt_id"], row["cluster"], row["weights"]) == ("b", "period 3", "ab12")
    assert row["result"] == key().digest
    memory = table(sites=third).prompts_to_pandas()
    same = [name for name in COLUMNS if name not in ("weights", "result")]
    pd.testing.assert_frame_equal(memory[same], frame[same])


def test_a_folder_has_the_values_of_the_latest_settings(tmp_path):
    store = Store(tmp_path)
    store.write(key(seed=0), table())
    store.write(key("other"), table("other"))
    store.write(key(seed=1), table(sites={s: x + 100 for s, x in SITES.items()}))
    store.find(key(seed=1))
    found = Store(tmp_path).read()
    assert found["induction"].prompts_to_pandas()["value"].min() == 93
    assert set(found.prompts_to_pandas()["metric"]) == {"induction", "other"}


def test_without_values_a_result_is_found_only_by_those_who_want_none(tmp_path):
    off = Store(tmp_path, prompt_values=False)
    path = off.write(key(), table())
    assert not values_file(path).exists()
    assert off.find(key()) == table()
    assert Store(tmp_path).find(key()) is None, "to be computed again, with its values"
    assert len(Store(tmp_path).read().prompts_to_pandas()) == 0
    Store(tmp_path).write(key(), table())
    assert off.find(key()) == table()
    exact = small(metric="ov_norm", provenance={"engine": "weights"})
    off.write(key("ov_norm"), exact)
    assert Store(tmp_path).find(key("ov_norm")) == exact, "scores of weights have no values"


@pytest.mark.parametrize("harm", ["cut", "gone"])
def test_lost_values_are_computed_again(tmp_path, harm):
    path = values_file(Store(tmp_path).write(key(), table()))
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(StoreError, match=r"is damaged: .*interp results repair"):
            read_values(path, "")
        with pytest.raises(StoreError, match="holds no values per prompt, or is damaged"):
            _ = Store(tmp_path).read().per_prompt
    assert Store(tmp_path).find(key()) is None


def test_other_names_keep_the_values():
    found = renamed(table(), {"tiny": "big"})
    assert found.per_prompt.tolist() == table().per_prompt.tolist()


def test_scores_by_cluster_are_the_means_of_their_prompts():
    frame = table().by_cluster()
    assert len(frame) == 4 * 2
    first = frame[(frame["layer"] == 0) & (frame["head"] == 0)]
    assert dict(zip(first["cluster"], first["score"], strict=True)) == {
        "period 2": np.mean([0, 4]),
        "period 3": np.mean([2, 6]),
    }
    alone = by_cluster(table(labels=None).prompts_to_pandas())
    assert set(alone["cluster"]) == {f"prompt {i}" for i in range(4)}


def test_effective_numbers_of_independent_and_of_repeated_prompts():
    rng = np.random.default_rng(0)
    alone = rng.normal(size=(40, 3))
    np.testing.assert_allclose(effective_number(alone), 40)
    labels = [i // 4 for i in range(160)]
    repeated = np.repeat(alone, 4, axis=0)
    # each cluster holds one value four times: as good as 40 prompts, up to the degrees of freedom
    np.testing.assert_allclose(effective_number(repeated, labels), 40 * (39 / 40) * (160 / 159))
    mixed = rng.normal(size=(4000, 1))
    assert effective_number(mixed, [i // 4 for i in range(4000)])[0] == pytest.approx(4000, rel=0.2)
    assert np.isnan(effective_number(np.ones((4, 2)))).all()
    values = PromptValues({("decoder", 0): repeated}, tuple(map(str, labels)))
    scores = [repeated.mean(0).tolist()]
    found = small(scores=scores).with_prompt_values({("tiny", "induction"): values})
    told = effective_numbers(found.prompts_to_pandas())
    assert told[["n", "clusters"]].values.tolist() == [[160, 40]] * 3
    np.testing.assert_allclose(told["n_effective"], 39 * 160 / 159, rtol=1e-4)
