"""Results where teams look for them: a dataset folder, TensorBoard, Weights & Biases, MLflow.

Each gets the rows, the page and the provenance, and one number per metric that can be compared
between runs. Only the dataset folder needs no further package.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.errors import OptionError, StoreError, UnknownName
from interp.core.files import write_atomically
from interp.core.installed import package_error, version
from interp.core.json_document import frame_bytes, plain

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from interp.core.result import Result

_PIXELS = 12  # side of a head in the picture of a metric
_CARD = """---
pretty_name: {title}
tags:
- interpretability
- attention-heads
configs:
{configs}
---

# {title}

{first}

Made with interp {version}. One row per {unit} and metric: `score` with its standard error `sem`
and 95 % interval `low` to `high`, `null` the same score without the behaviour, `n` the number
behind it, `unit` the unit of the score. Open `page.html` in a browser. Read the rows with
`pandas.read_parquet("rows.parquet")`, or with `datasets.load_dataset` from this folder or from
where it was uploaded (`hf upload NAME FOLDER --repo-type dataset`).

## Provenance

```json
{provenance}
```
"""


def publish(result: Result, to: str, out: str | os.PathLike | None = None) -> str:
    """Send a result to a tracker of experiments, or write it as a dataset; see `Result.publish`."""
    if to not in TRACKERS:
        raise UnknownName("tracker", to, TRACKERS)
    return TRACKERS[to](result, None if out is None else Path(out))


def _dataset(result: Result, out: Path | None) -> str:
    folder = _required(out, "dataset")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = any(folder.iterdir())
    except OSError as error:
        raise StoreError(f"{folder} cannot be written: {error.strerror}") from error
    if taken:
        raise StoreError(f"{folder} is not empty; give a new folder, so that nothing is replaced")
    write_atomically(folder / "rows.parquet", frame_bytes(result.to_pandas(), ".parquet"))
    tables = {"rows": "rows.parquet"}
    of_prompts: Any = getattr(result, "prompts_to_pandas", None)  # of a table of scores
    if of_prompts is not None:
        each = of_prompts()
        if len(each):
            write_atomically(folder / "per_prompt.parquet", frame_bytes(each, ".parquet"))
            tables["per_prompt"] = "per_prompt.parquet"
    result.save_html(folder / "page.html")
    card = _CARD.format(
        title=json.dumps(_title(result), ensure_ascii=False),
        configs="\n".join(
            f"- config_name: {name}\n  data_files: {file}" for name, file in tables.items()
        ),
        first=_escaped(result.first_line()),
        version=version(),
        unit=", ".join(type(result)._units) or "result",
        provenance=json.dumps(_provenance(result), indent=1, ensure_ascii=False),
    )
    write_atomically(folder / "README.md", card.encode())  # last: with it the folder is whole
    return str(folder)


def _tensorboard(result: Result, out: Path | None) -> str:
    folder = _required(out, "tensorboard")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise _package_error(error, "tensorboard") from error
    with SummaryWriter(str(folder)) as writer:
        for name, value in _numbers(result.to_pandas()):
            writer.add_scalar(name, value)
        for name, heads in _pictures(result.to_pandas()):
            writer.add_image(name, heads, dataformats="HW")
        writer.add_text("result", _escaped(result.first_line()))
        writer.add_text("provenance", f"```\n{json.dumps(_provenance(result), indent=1)}\n```")
    return str(folder)


def _wandb(result: Result, out: Path | None) -> str:
    try:
        import wandb
    except ImportError as error:
        raise _package_error(error, "wandb") from error
    options: dict[str, Any] = {}
    if out is not None:  # otherwise where and how is up to the settings of wandb
        out.mkdir(parents=True, exist_ok=True)
        options = {"dir": str(out), "mode": "offline"}
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", "interp"),
        name=_title(result),
        config=_provenance(result),
        **options,
    )
    try:
        run.log({"rows": wandb.Table(dataframe=result.to_pandas().astype(object))})
        with _page(result) as page:
            run.log({"page": wandb.Html(str(page))})
        run.summary.update(dict(_numbers(result.to_pandas())))
        place = str(run.url or run.dir)
    finally:
        run.finish()
    return place


def _mlflow(result: Result, out: Path | None) -> str:
    try:
        import mlflow  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise _package_error(error, "mlflow") from error
    if out is not None:  # otherwise MLFLOW_TRACKING_URI, or what mlflow does without it
        out.mkdir(parents=True, exist_ok=True)
        mlflow.set_tracking_uri(f"sqlite:///{(out / 'mlflow.db').resolve()}")
        if mlflow.get_experiment_by_name("interp") is None:
            mlflow.create_experiment("interp", (out / "artifacts").resolve().as_uri())
        mlflow.set_experiment("interp")
    with mlflow.start_run(run_name=_title(result)) as run:
        mlflow.log_metrics(
            {_plain_name(name): value for name, value in _numbers(result.to_pandas())}
        )
        mlflow.log_dict(_provenance(result), "provenance.json")
        with _page(result) as page:
            mlflow.log_artifact(str(page))
            rows = page.with_name("rows.parquet")
            rows.write_bytes(frame_bytes(result.to_pandas(), ".parquet"))
            mlflow.log_artifact(str(rows))
        return f"{mlflow.get_tracking_uri()}, run {run.info.run_id}"


TRACKERS = {
    "dataset": _dataset,
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}
"""Where results can go, by name."""


@contextmanager
def _page(result: Result) -> Iterator[Path]:
    """Give the page of a result in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="interp-") as folder:
        page = Path(folder) / "page.html"
        result.save_html(page)
        yield page


def _numbers(frame: pd.DataFrame) -> Iterator[tuple[str, float]]:
    """Yield the mean, the largest and the null of every metric, for curves over runs."""
    import numpy as np

    groups: Any = frame.groupby(["model", "metric"], sort=False, dropna=False)
    for (model, metric), part in groups:
        scores, nulls = part["score"].to_numpy(float), part["null"].to_numpy(float)
        for what, values, reduced in (
            ("mean", scores, np.mean),
            ("largest", scores, np.max),
            ("null", nulls, np.mean),
        ):
            finite = values[np.isfinite(values)]
            if len(finite):
                yield f"{model}/{metric}/{what}", float(reduced(finite))


def _pictures(frame: pd.DataFrame) -> Iterator[tuple[str, np.ndarray]]:
    """Yield layers times heads of every metric of heads, from its lowest (0) to its highest (1)."""
    import numpy as np

    if not {"layer", "head"} <= set(frame.columns):
        return
    rows = frame[frame["head"].notna() & np.isfinite(frame["score"].astype(float))]
    stacks = rows["stack"] if "stack" in rows.columns else rows["layer"] * 0
    groups: Any = rows.groupby(["model", "metric", stacks], sort=False)
    for (model, metric, stack), part in groups:
        scores = part["score"].to_numpy(float)
        low, high = float(scores.min()), float(scores.max())
        at = part["layer"].to_numpy(int), part["head"].to_numpy(int)
        picture = np.zeros([int(x.max()) + 1 for x in at], dtype=np.float32)
        picture[at] = (scores - low) / (high - low) if high > low else 0.5
        name = f"{model}/{metric}/{stack}, {low:.3g} to {high:.3g}"
        yield name, np.kron(picture, np.ones((_PIXELS, _PIXELS), dtype=np.float32))


def _required(out: Path | None, to: str) -> Path:
    if out is None:
        raise OptionError(f"{to} is written to a folder; give one (out=, -o)")
    return out


def _title(result: Result) -> str:
    models = sorted({*map(str, result.to_pandas()["model"])})
    return f"{', '.join(models[:3])}{' and others' if len(models) > 3 else ''}: {result._name}"


def _provenance(result: Result) -> dict[str, Any]:
    """Return the provenance as plain data; of a table of scores by model and metric."""
    about = {
        ", ".join(key) if isinstance(key, tuple) else str(key): value
        for key, value in result.provenance.items()
    }
    return json.loads(json.dumps(plain(about), default=str))


def _escaped(text: str) -> str:
    """Keep a text from being read as Markdown or HTML."""
    return re.sub(r"([\\`*_\[\]<>#|$])", r"\\\1", text)


def _plain_name(name: str) -> str:
    """Replace what the names of metrics in MLflow may not hold."""
    return re.sub(r"[^\w\-. /:]", "_", name)


def _package_error(error: ImportError, package: str) -> OptionError:
    return package_error(
        error, f"the tracker {package}", package, f"pip install 'interp[{package}]'"
    )
