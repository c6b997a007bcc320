"""Dictionaries and Lorsa heads, trained and scored in one call: `interp train dictionary`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.dictionaries import (
    feature_cards,
    load_dictionary,
    monosemanticity,
    profile_heads,
    profile_lorsa,
    save_dictionary,
    save_lorsa,
    score_dictionary,
    score_features,
    score_lorsa,
    train_dictionary,
    train_lorsa,
)

if TYPE_CHECKING:
    from interp.core.prompts import Prompts
    from interp.model.model import Model


def study_dictionary(
    model: Model,
    first: Prompts,
    second: Prompts,
    options: dict[str, Any],
    held: Path | None,
    other_weights: bool,
    features: bool,
    cards: int | None,
    out: Path | None,
    progress: Any,
) -> dict[str, Any]:
    """Train a dictionary and score it, or score a stored one; return the results by name."""
    results: dict[str, Any] = {}
    if held is not None:
        dictionary = load_dictionary(held, model, other_weights=other_weights)
        results["scores"] = score_dictionary(
            model, dictionary, second, other_weights=other_weights, progress=progress
        )
    else:
        training = train_dictionary(model, first, progress=progress, **options)
        dictionary = training.dictionary
        results["training"] = training
        results["scores"] = score_dictionary(model, training, second, progress=progress)
        if out is not None:
            save_dictionary(dictionary, out)
    if features:
        results["features"] = score_features(model, dictionary, second, other_weights=other_weights)
        heads = profile_heads(model, second, dictionary.layer, stack=dictionary.stack)
        results["monosemanticity"] = monosemanticity(
            {"head": heads, "feature": results["features"]}
        )
    if cards is not None:
        results["cards"] = feature_cards(
            model,
            dictionary,
            second,
            n_features=cards,
            seed=options["seed"],
            other_weights=other_weights,
        )
    return results


def study_lorsa(
    model: Model,
    first: Prompts,
    second: Prompts,
    options: dict[str, Any],
    size: int | None,
    features: bool,
    out: Path | None,
    progress: Any,
) -> dict[str, Any]:
    """Train low-rank sparse attention heads and score them; return the results by name."""
    training = train_lorsa(model, first, n_heads=size, progress=progress, **options)
    results: dict[str, Any] = {"training": training, "scores": score_lorsa(model, training, second)}
    if out is not None:
        save_lorsa(training.lorsa, out / "lorsa.safetensors")
    if features:
        results["features"] = profile_lorsa(model, training.lorsa, second)
        results["monosemanticity"] = monosemanticity(
            {
                "head": profile_heads(model, second, training.lorsa.layer),
                "lorsa": results["features"],
                "untrained lorsa": profile_lorsa(model, training.untrained, second),
            }
        )
    return results
