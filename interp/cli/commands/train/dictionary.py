"""Command `interp train dictionary`: train a sparse dictionary of a layer, and score it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.loading import Loading, loaded, loading_options
from interp.cli.progress import Voice
from interp.cli.shared_options import model_argument
from interp.cli.value_types import OUT_FOLDER
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.core.prompts import Prompts
    from interp.model.model import Model


@click.command(
    epilog="Example: interp train dictionary bundled:induction --layer 1 --features -o dictionary"
)
@model_argument
@click.option(
    "--layer",
    type=click.IntRange(0),
    help="Layer whose activations are decomposed; needed to train.",
)
@click.option(
    "--file", "texts", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Texts, one per line (.txt) or .jsonl: four fifths train and the rest score. Without it: "
    "random tokens that repeat.",
)  # fmt: skip
@click.option(
    "--site", default="z", show_default=True,
    type=click.Choice(["z", "attn_out", "resid_pre", "resid_mid", "resid_post", "transcoder"]),
    help="Activation that is decomposed; a transcoder reads the attention layer's "
         "input and writes its output.",
)  # fmt: skip
@click.option(
    "--architecture", default=None,
    type=click.Choice(["standard", "topk", "batchtopk", "jumprelu", "gated"]),
    help="Architecture of the dictionary; topk by default, batchtopk for a transcoder.",
)  # fmt: skip
@click.option("--lorsa", is_flag=True, help="Train low-rank sparse attention heads instead.")
@click.option(
    "--load", "held", type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR", help="Score this folder (layout of SAELens) instead of training.",
)  # fmt: skip
@click.option("--n-features", "size", type=click.IntRange(1), metavar="N",
              help="Number of features or Lorsa heads.")  # fmt: skip
@click.option("-k", "k", default=8, show_default=True, type=click.IntRange(1),
              help="Number of active features, or Lorsa heads, per position.")  # fmt: skip
@click.option("--steps", type=click.IntRange(1), metavar="N", help="Number of training steps.")
@click.option("-n", "n", default=256, show_default=True, type=click.IntRange(20), metavar="N",
              help="Number of prompts in all.")  # fmt: skip
@click.option("--max-length", "longest", default=64, show_default=True,
              type=click.IntRange(4), metavar="N",
              help="Maximum number of tokens of a prompt.")  # fmt: skip
@click.option("--features", is_flag=True,
              help="Score features by the detectors of heads, beside the heads.")  # fmt: skip
@click.option("--top", "cards", type=click.IntRange(1), metavar="N",
              help="Describe the N most active features; with -o as a page too.")  # fmt: skip
@click.option("--other-weights", is_flag=True,
              help="With --load: accept a model whose weights differ.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of everything random.")
@click.option("-o", "--out", type=OUT_FOLDER, metavar="DIR",
              help="Folder for the dictionary and its results.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def dictionary(
    source: str, layer: int | None, texts: Path | None, site: str, architecture: str | None,
    lorsa: bool, held: Path | None, size: int | None, k: int, steps: int | None, n: int,
    longest: int, features: bool, cards: int | None, other_weights: bool, seed: int,
    out: Path | None, quiet: bool, loading: Loading, imports: tuple[str, ...],
) -> None:  # fmt: skip
    """Train a sparse dictionary of one layer of MODEL, or score one of a folder.

    Printed are core metrics on held-out prompts beside an untrained dictionary, a shuffled one and
    random directions; with --features how features score on the detectors of heads; with --top
    what the most active features read and write.
    """
    if (layer is None) == (held is None):
        raise OptionError("give --layer to train a dictionary, or --load to score one")
    if other_weights and held is None:
        raise OptionError("--other-weights is for --load; give a folder")
    if lorsa and (site != "z" or any(x is not None for x in (held, architecture, cards))):
        raise OptionError("--lorsa is trained on the attention layer itself; leave out --load, "
                          "--site, --architecture and --top")  # fmt: skip
    voice = Voice.of_command(quiet=quiet)
    model = loaded(source, loading, imports)
    first, second = _prompts(model, texts, n, longest, seed)
    options: dict[str, Any] = {"k": k, "seed": seed, "layer": layer}
    if steps is not None:
        options["steps"] = steps
    with voice.bars(model.name) as tell:
        if lorsa:
            results = _lorsa(model, first, second, options, size, features, out, tell)
        else:
            if site == "transcoder":
                options |= {"site": "attn_in", "site_out": "attn_out"}
                architecture = architecture or "batchtopk"
            else:
                options["site"] = site
            options |= {"architecture": architecture or "topk", "d_sae": size}
            results = _dictionary(
                model, first, second, options, held, other_weights, features, cards, out, tell
            )
    for result in results.values():
        click.echo(repr(result))
    if out is not None:
        for name, result in results.items():
            result.save(out / f"{name}.json")
        files = [f"{name}.json" for name in results]
        if "cards" in results:
            results["cards"].save(out / "cards.html")
            files.append("cards.html")
        voice.note(f"{out}: {', '.join(files)}")


def _prompts(
    model: Model, texts: Path | None, n: int, longest: int, seed: int
) -> tuple[Prompts, Prompts]:
    """Return the prompts to train on and those to score on."""
    from interp.core.prompts import from_file, repeats
    from interp.dictionaries.activations import cut_texts

    if texts is None:
        period = max(2, longest // 2 - 1)
        return (
            repeats(model, n=n * 4 // 5, longest=period, seed=seed),
            repeats(model, n=n - n * 4 // 5, longest=period, seed=seed + 1000),
        )
    given = cut_texts(from_file(texts, model), longest)
    n = min(n, len(given))
    if n < 20:
        raise OptionError(f"{texts} has {n} texts; at least 20 are needed to train and to score")
    return given.part(range(n * 4 // 5)), given.part(range(n * 4 // 5, n))


def _dictionary(
    model: Model, first: Prompts, second: Prompts, options: dict[str, Any], held: Path | None,
    other_weights: bool, features: bool, cards: int | None, out: Path | None, tell: Any,
) -> dict[str, Any]:  # fmt: skip
    from interp.dictionaries import (
        feature_cards,
        load_dictionary,
        monosemanticity,
        profile_heads,
        save_dictionary,
        score_dictionary,
        score_features,
        train_dictionary,
    )

    results: dict[str, Any] = {}
    if held is not None:
        made = load_dictionary(held, model, other_weights=other_weights)
        results["scores"] = score_dictionary(
            model, made, second, other_weights=other_weights, progress=tell
        )
    else:
        training = train_dictionary(model, first, progress=tell, **options)
        made = training.dictionary
        results["training"] = training
        results["scores"] = score_dictionary(model, training, second, progress=tell)
        if out is not None:
            save_dictionary(made, out)
    if features:
        results["features"] = score_features(model, made, second, other_weights=other_weights)
        heads = profile_heads(model, second, made.layer, stack=made.stack)
        results["monosemanticity"] = monosemanticity(
            {"head": heads, "feature": results["features"]}
        )
    if cards is not None:
        results["cards"] = feature_cards(
            model, made, second, most=cards, seed=options["seed"], other_weights=other_weights
        )
    return results


def _lorsa(
    model: Model, first: Prompts, second: Prompts, options: dict[str, Any], size: int | None,
    features: bool, out: Path | None, tell: Any,
) -> dict[str, Any]:  # fmt: skip
    from interp.dictionaries import (
        monosemanticity,
        profile_heads,
        profile_lorsa,
        save_lorsa,
        score_lorsa,
        train_lorsa,
    )

    training = train_lorsa(model, first, n_heads=size, progress=tell, **options)
    results: dict[str, Any] = {"training": training, "scores": score_lorsa(model, training, second)}
    if out is not None:
        save_lorsa(training.lorsa, out / "lorsa.safetensors")
    if features:
        results["features"] = profile_lorsa(model, training.lorsa, second)
        results["monosemanticity"] = monosemanticity({
            "head": profile_heads(model, second, training.lorsa.layer),
            "lorsa": results["features"],
            "untrained lorsa": profile_lorsa(model, training.untrained, second),
        })  # fmt: skip
    return results
