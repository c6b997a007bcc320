"""Command `interp train dictionary`: train a sparse dictionary of a layer, and score it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.vocabulary import FROM_1, Spelling
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.core.prompts import Prompts
    from interp.model.model import Model


def _check(run: Run) -> None:
    values = run.values
    if (values["layer"] is None) == (values["load"] is None):
        raise OptionError("give --layer to train a dictionary, or --load to score one")
    if values["other_weights"] and values["load"] is None:
        raise OptionError("--set other_weights is for --load; give a folder")
    of_dictionaries = (values["load"], values["architecture"], values["top"])
    if values["lorsa"] and (values["site"] != "z" or any(x is not None for x in of_dictionaries)):
        raise OptionError(
            "--set lorsa is trained on the attention layer itself; leave out --load, --site, "
            "--set architecture and --top"
        )


def _prompts(run: Run) -> tuple[Prompts, Prompts]:
    """Return the prompts to train on and those to score on."""
    from interp.core.prompts import from_file, repeats
    from interp.dictionaries.activations import cut_texts

    model, values = run.model, run.values
    texts, n, max_length, seed = (values[name] for name in ("file", "n", "max_length", "seed"))
    if texts is None:
        period = max(2, max_length // 2 - 1)
        return (
            repeats(model, n=n * 4 // 5, max_length=period, seed=seed),
            repeats(model, n=n - n * 4 // 5, max_length=period, seed=seed + 1000),
        )
    read = cut_texts(from_file(texts, model), max_length)
    n = min(n, len(read))
    if n < 20:
        raise OptionError(f"{texts} has {n} texts; at least 20 are needed to train and to score")
    return read.part(range(n * 4 // 5)), read.part(range(n * 4 // 5, n))


@command(
    inputs={"prompts": Input(_prompts, ("file", "n", "max_length"))},
    options={
        "file": Spelling(
            type=click.Path(path_type=Path, dir_okay=False),
            help="Texts, one per line (.txt) or .jsonl: four fifths train and the rest score. "
            "Without it: random tokens that repeat.",
        ),
        "n": Spelling(type=click.IntRange(20), default=256, help="Number of prompts in all."),
        "max_length": Spelling(type=click.IntRange(4), default=64),
        "load": Spelling(
            type=click.Path(path_type=Path, file_okay=False, exists=True), metavar="DIR"
        ),
        "n_features": Spelling(type=FROM_1),
        "k": Spelling(type=FROM_1),
        "steps": Spelling(type=FROM_1),
        "top": Spelling(type=FROM_1, metavar="N"),
    },
    check=_check,
    text="interp.report.printed.tables:lines_text",
    example="interp train dictionary bundled:stories --layer 3 --set features -o dictionary",
)
def dictionary(
    run: Run,
    model: Model,
    prompts: Any,
    *,
    layer: int | None = None,
    site: Literal["z", "attn_out", "resid_pre", "resid_mid", "resid_post", "transcoder"] = "z",
    architecture: Literal["standard", "topk", "batchtopk", "jumprelu", "gated"] | None = None,
    lorsa: bool = False,
    load: Path | None = None,
    n_features: int | None = None,
    k: int = 8,
    steps: int | None = None,
    features: bool = False,
    top: int | None = None,
    other_weights: bool = False,
    seed: int = 0,
    progress: Any = None,
) -> list[Any]:
    """Train a sparse dictionary of one layer of MODEL, or score one of a folder.

    Printed are core metrics on held-out prompts beside an untrained dictionary, a shuffled one and
    random directions; with --set features how features score on the detectors of heads; with --top
    what the most active features read and write.

    Args:
        prompts: prompts to train on, and those to score on.
        layer: layer whose activations are decomposed; needed to train.
        site: activation that is decomposed; a transcoder reads the attention layer's input and
            writes its output.
        architecture: architecture of the dictionary; topk by default, batchtopk for a transcoder.
        lorsa: train low-rank sparse attention heads instead.
        load: score this folder (layout of SAELens) instead of training.
        n_features: number of features or Lorsa heads.
        k: number of active features, or Lorsa heads, per position.
        steps: number of training steps.
        features: score features by the detectors of heads, beside the heads.
        top: describe the N most active features; with -o as a page too.
        other_weights: with --load: accept a model whose weights differ.
        seed: seed of everything random.
    """
    from interp.dictionaries.study import study_dictionary, study_lorsa

    first, second = prompts
    options: dict[str, Any] = {"k": k, "seed": seed, "layer": layer}
    if steps is not None:
        options["steps"] = steps
    if lorsa:
        results = study_lorsa(
            model, first, second, options, n_features, features, run.out, progress
        )
    else:
        default = "topk"
        if site == "transcoder":
            options |= {"site": "attn_in", "site_out": "attn_out"}
            default = "batchtopk"
        else:
            options["site"] = site
        options |= {"architecture": architecture or default, "d_sae": n_features}
        results = study_dictionary(
            model, first, second, options, load, other_weights, features, top, run.out, progress
        )
    if run.out is not None:
        for name, result in results.items():
            result.save(run.out / f"{name}.json")
        files = [f"{name}.json" for name in results]
        if "cards" in results:
            results["cards"].save(run.out / "cards.html")
            files.append("cards.html")
        run.voice.note(f"{run.out}: {', '.join(files)}")
    return [*results.values()]
