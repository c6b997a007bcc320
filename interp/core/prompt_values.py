"""Values per prompt behind the scores of heads: their Parquet files, and their use in tables.

One row is one head on one prompt, with the columns `COLUMNS`. `prompt_id` is equal for equal
prompts of any model and run, so that results can be paired by it; `cluster` is empty where prompts
are independent. `interp.core.store` reads those of a results folder, and
`HeadTable.prompts_to_pandas` gives those of a table in memory.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.errors import OptionError, StoreError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from jaxtyping import Float

    from interp.core.clusters import PromptValues

SUFFIX = ".prompts.parquet"
_FORMAT = "interp prompt values 1"
_TEXTS = ("model", "weights", "metric", "result", "stack")  # one value, or few, in a file
COLUMNS = (*_TEXTS, "layer", "head", "prompt", "prompt_id", "cluster", "value", "null")
"""Columns of the values: `weights` is the content hash of the model, `result` the digest of the
result's key, `prompt` the index of the prompt, `value` the score on it, NaN without a target, and
`null` the score on the null of the same prompt (its tokens shuffled), NaN where there is none."""


def values_file(result: Path) -> Path:
    """Return the file of the values per prompt that belongs to the file of a result."""
    return result.with_name(result.name.removesuffix(".parquet") + SUFFIX)


def values_to_parquet(
    model: str, metric: str, values: PromptValues, *, weights: str = "", result: str = ""
) -> bytes:
    """Format values as Parquet, one row per head and prompt, in float32."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = _arrow(model, metric, values, weights, result)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue().to_pybytes()


def _arrow(model: str, metric: str, values: PromptValues, weights: str, result: str) -> Any:
    import numpy as np
    import pyarrow as pa

    stacks = list(dict.fromkeys(stack for stack, _ in values.sites))
    names = ("stack", "layer", "head", "prompt", "x", "null")
    parts: dict[str, list[Any]] = {name: [] for name in names}
    for (stack, layer), each in values.sites.items():
        prompts, heads = each.shape
        parts["stack"].append(np.full(each.size, stacks.index(stack), dtype=np.int32))
        parts["layer"].append(np.full(each.size, layer, dtype=np.int32))
        parts["head"].append(np.repeat(np.arange(heads, dtype=np.int32), prompts))
        parts["prompt"].append(np.tile(np.arange(prompts, dtype=np.int32), heads))
        parts["x"].append(each.T.ravel().astype(np.float32))
        beside = None if values.null is None else values.null.get((stack, layer))
        if beside is None or beside.shape != each.shape:
            beside = np.full(each.shape, np.nan)
        parts["null"].append(beside.T.ravel().astype(np.float32))
    none = {"x": np.zeros(0, np.float32), "null": np.zeros(0, np.float32)}
    empty = {name: np.zeros(0, dtype=np.int32) for name in parts} | none
    whole = {name: np.concatenate([empty[name], *chunks]) for name, chunks in parts.items()}
    rows, prompt = len(whole["x"]), whole["prompt"]
    number = int(prompt.max(initial=-1)) + 1

    def per_prompt(texts: Iterable[str] | None) -> Any:
        texts = [""] * number if texts is None else list(map(str, texts))
        known = {text: at for at, text in enumerate(dict.fromkeys(texts))}
        which = np.array([known[text] for text in texts], dtype=np.int32)
        return _named(np.tile(which, rows // max(number, 1)), list(known))

    def one(text: str) -> Any:
        return _named(np.zeros(rows, dtype=np.int32), [text])

    arrays = {"model": one(model), "weights": one(weights), "metric": one(metric)}
    arrays |= {"result": one(result), "stack": _named(whole["stack"], stacks)}
    arrays |= {name: pa.array(whole[name]) for name in ("layer", "head", "prompt")}
    arrays |= {"prompt_id": per_prompt(values.ids), "cluster": per_prompt(values.clusters)}
    arrays["value"], arrays["null"] = pa.array(whole["x"]), pa.array(whole["null"])
    table = pa.table({name: arrays[name] for name in COLUMNS})
    return table.replace_schema_metadata(
        {"interp": _FORMAT, "interp.clustered": str(int(values.clusters is not None))}
    )


def _named(index: np.ndarray, names: list[str]) -> Any:
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(index), pa.array(names, pa.string()))


def values_from_parquet(content: bytes) -> Any:
    """Read the bytes of `values_to_parquet` as an Arrow table; ValueError when damaged."""
    from interp.core.parquet_file import checked_parquet

    table = checked_parquet(content)
    _require_format(table.schema)
    return table


def _require_format(schema: Any) -> None:
    notes = schema.metadata or {}
    if notes.get(b"interp") != _FORMAT.encode() or schema.names != list(COLUMNS):
        raise ValueError("it is a Parquet file with other contents")


def read_values(path: Path, recorded: str) -> Any:
    """Read a file of values per prompt as an Arrow table."""
    from interp.core.files import read_bytes

    content = read_bytes(path)
    try:
        table = values_from_parquet(content)  # first: a clearer reason where it is cut off
        if recorded and recorded.partition(":")[2] != hashlib.sha256(content).hexdigest():
            raise ValueError("it is not the file that belongs to its result")
    except ValueError as error:
        raise StoreError(
            f"{path} holds no values per prompt, or is damaged: {error}; `interp results repair`"
            " sets it aside, and the command that made it computes it again"
        ) from error
    return table


class StoredValues:
    """Values per prompt in a file, read when they are first used; see `PromptValues`.

    Raises StoreError, at the first use, when the file is missing or damaged.

    Args:
        path: the file.
        recorded: its size and checksum; see `read_values`.
    """

    def __init__(self, path: Path, recorded: str = "") -> None:
        self.path, self.recorded = path, recorded

    @cached_property
    def _read(self) -> PromptValues:
        from interp.core.clusters import PromptValues

        table = read_values(self.path, self.recorded)
        sites: dict[tuple[str, int], Any] = {}
        null: dict[tuple[str, int], Any] = {}
        frame = table.select(["stack", "layer", "head", "prompt", "value", "null"]).to_pandas()
        number = int(frame["prompt"].max()) + 1 if len(frame) else 0
        for (stack, layer), rows in frame.groupby(["stack", "layer"], sort=False, observed=True):
            at = str(stack), int(layer)
            sites[at] = rows["value"].to_numpy(float).reshape(-1, number).T
            if rows["null"].notna().any():
                null[at] = rows["null"].to_numpy(float).reshape(-1, number).T
        first = table.slice(0, number)
        ids = tuple(first["prompt_id"].to_pylist())
        clustered = table.schema.metadata[b"interp.clustered"] == b"1"
        labels = tuple(first["cluster"].to_pylist()) if clustered else None
        return PromptValues(sites, labels, ids if any(ids) else None, null or None)

    @property
    def sites(self) -> Mapping[tuple[str, int], Float[np.ndarray, "prompt head"]]:
        """Values by stack and layer, in float64."""
        return self._read.sites

    @property
    def clusters(self) -> tuple[str, ...] | None:
        """Label of each prompt, where prompts share something."""
        return self._read.clusters

    @property
    def ids(self) -> tuple[str, ...] | None:
        """Identity of each prompt."""
        return self._read.ids

    @property
    def null(self) -> Mapping[tuple[str, int], Float[np.ndarray, "prompt head"]] | None:
        """Values on the null of each prompt, where there is one."""
        return self._read.null

    def of_rows(self, frame: pd.DataFrame) -> Float[np.ndarray, "row prompt"] | None:
        """Return the values of the rows of a table, or None where it has no rows."""
        return self._read.of_rows(frame)


class WithPromptValues:
    """Members of a table of head scores that read its values per prompt."""

    _prompt_values: Mapping[tuple[str, str], Any]
    _provenance: Mapping[tuple[str, str], Any]
    _frame: pd.DataFrame

    @property
    def prompt_values(self) -> dict[tuple[str, str], PromptValues]:
        """Values per prompt by (model, metric), of the metrics that have them."""
        return dict(self._prompt_values)

    @property
    def per_prompt(self) -> Float[np.ndarray, "row prompt"] | None:
        """Values behind the means, in a table of one metric of one model that has them."""
        values = self._only_values()
        return None if values is None else values.of_rows(self._frame)

    @property
    def clusters(self) -> tuple[str, ...] | None:
        """Label of each prompt of `per_prompt`, where prompts share something."""
        values = self._only_values()
        return None if values is None else values.clusters

    @property
    def prompt_ids(self) -> tuple[str, ...] | None:
        """Identity of each prompt of `per_prompt`, equal for equal prompts of any run."""
        values = self._only_values()
        return None if values is None else values.ids

    @property
    def why_no_per_prompt(self) -> str:
        """Reason for which `per_prompt` is None."""
        if len(self._provenance) > 1:
            return "each metric and model has its own values; choose one, as in table['induction']"
        return "the table was read from a file, which holds means, or its scores are of weights"

    def _only_values(self) -> PromptValues | None:
        keys = list(self._provenance)
        return self._prompt_values.get(keys[0]) if len(keys) == 1 else None

    def _chosen_bounds(self, key: Any, rows: pd.DataFrame, level: float) -> np.ndarray:
        """Compute the intervals of some heads of one metric from their values per prompt."""
        import numpy as np

        from interp.core.intervals import site_intervals
        from interp.core.registry import METRICS

        values = self._prompt_values.get(key)
        if values is None:
            if np.isnan(rows["low"].to_numpy(float)).all():
                return np.full((len(rows), 2), math.nan)
            raise OptionError(
                f"the 95 % intervals of {key[1]} were chosen by its values per prompt, which this "
                f"table does not hold, so there are none at level={level}; score it again"
            )
        bounds = METRICS.ranges().get(key[1].partition(":")[0], (None, None))
        intervals = site_intervals(values.sites, values.clusters, bounds, level)
        at = zip(rows["stack"], rows["layer"], rows["head"], strict=True)
        return np.stack([intervals[stack, layer].ends[head] for stack, layer, head in at])

    def prompts_to_pandas(self) -> pd.DataFrame:
        """Return the values per prompt of all metrics that have them, with the columns `COLUMNS`.

        Raises StoreError when a file of values is missing or damaged.
        """
        provenance = self._provenance
        return values_to_pandas(
            _arrow(model, metric, v, str(provenance[model, metric].get("content_hash") or ""), "")
            for (model, metric), v in self._prompt_values.items()
        )

    def by_cluster(self) -> pd.DataFrame:
        """Return the mean of every head on each cluster of prompts; see `by_cluster`."""
        return by_cluster(self.prompts_to_pandas())

    def effective_numbers(self) -> pd.DataFrame:
        """Return n, clusters and effective number of prompts of every head.

        See `effective_numbers`.
        """
        return effective_numbers(self.prompts_to_pandas())


def by_cluster(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean, mean of the null and number of prompts of every head on each cluster of prompts."""
    heads = ["model", "weights", "metric", "result", "stack", "layer", "head"]
    frame = frame.assign(cluster=frame["cluster"].astype(str))
    alone = frame["cluster"] == ""
    frame.loc[alone, "cluster"] = "prompt " + frame.loc[alone, "prompt"].astype(str)
    grouped = frame.groupby([*heads, "cluster"], sort=False, observed=True)
    columns = {"score": ("value", "mean"), "null": ("null", "mean"), "n": ("value", "count")}
    return grouped.agg(**columns).reset_index()


def effective_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return n, clusters and effective number of prompts of every head."""
    import numpy as np
    import pandas as pd

    from interp.core.clusters import cluster_count, effective_number

    heads = ["model", "weights", "metric", "result", "stack", "layer", "head"]
    rows = []
    name: Any
    for name, each in frame[frame["value"].notna()].groupby(heads, sort=False, observed=True):
        labels = list(map(str, each["cluster"]))
        clusters = labels if any(labels) else None
        values = np.array(each["value"], dtype=float)[:, None]
        number = float(effective_number(values, clusters)[0])
        figures = {"n": len(each), "clusters": cluster_count(len(each), clusters)}
        rows.append(dict(zip(heads, name, strict=True)) | figures | {"n_effective": number})
    return pd.DataFrame(rows, columns=[*heads, "n", "clusters", "n_effective"])


def values_to_pandas(tables: Iterable[Any]) -> pd.DataFrame:
    """Return one frame of several Arrow tables."""
    import pandas as pd
    import pyarrow as pa

    tables = list(tables)
    if not tables:
        return pd.DataFrame(columns=[*COLUMNS])
    frame = pa.concat_tables(tables).unify_dictionaries().replace_schema_metadata(None).to_pandas()
    for name in ("layer", "head", "prompt"):
        frame[name] = frame[name].astype("int64")
    return frame
