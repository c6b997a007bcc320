"""Probes on disk: arrays as safetensors with a description in JSON, checked before use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.core.documents import document_checksum, parse_json
from interp.core.errors import OptionError, StoreError
from interp.core.files import read_bytes, write_atomically
from interp.core.json_document import json_document, stored_document
from interp.probes.features import HeadFeatures
from interp.probes.linear import LinearProbe

FORMAT = "interp train probe 1"
_ARRAYS = ("mean", "scale", "weights", "calibration")


class ProbeMismatch(OptionError):
    """Features that a probe was not made for: of another kind, other heads or another model."""


@dataclass(frozen=True, eq=False)
class HeadProbe:
    """A trained probe with the features, heads and model that it belongs to.

    Args:
        linear: weights and calibration.
        kind: how its features are made.
        places: stack, layer and head of every feature.
        classes: names of the two labels; probabilities are of the second.
        model: name and hash of the model.
        scores: held-out scores from its training.
    """

    linear: LinearProbe
    kind: str
    places: tuple[tuple[str, int, int], ...]
    classes: tuple[str, ...]
    model: Mapping[str, Any]
    scores: Mapping[str, Any] = field(default_factory=dict)

    def apply(
        self, features: HeadFeatures, *, other_weights: bool = False
    ) -> Float[np.ndarray, " item"]:
        """Return the calibrated probability of the second class for every item.

        Args:
            features: features of the same kind, heads and model.
            other_weights: accept another model of the same heads, such as a fine-tuned one; its
                probabilities are then not known to be calibrated.

        Raises:
            ProbeMismatch: the features are of another kind, of other heads or of another model.
        """
        if features.kind != self.kind:
            raise ProbeMismatch(
                f"the probe reads {self.kind}, and these features are {features.kind}; make the "
                f"same features"
            )
        if features.places != self.places:
            raise ProbeMismatch(
                f"the probe reads {len(self.places)} features of {len(set(self.places))} heads, "
                f"and these are {len(features.places)} of {len(features.heads)} heads; sizes or "
                f"layers differ; use the model that it was trained on"
            )
        mine, other = self.model.get("hash"), features.model.get("hash")
        if mine != other and not other_weights:
            raise ProbeMismatch(
                f"the probe was trained on {self.model.get('name')} ({str(mine)[:12]}), and these "
                f"features are of {features.model.get('name')} ({str(other)[:12]}), whose weights "
                f"differ; other_weights=True accepts them"
            )
        return self.linear.probabilities(features.x)

    def save(self, path: str | Path) -> None:
        """Write the probe as safetensors, in one step.

        Raises:
            StoreError: the file cannot be written.
        """
        from safetensors.numpy import save

        x = self.linear
        arrays = {"mean": x.mean, "scale": x.scale, "weights": x.weights}
        arrays["calibration"] = np.array([x.intercept, x.slope, x.offset])
        about = {"format": FORMAT, "kind": self.kind, "places": self.places}
        about |= {"classes": self.classes, "model": dict(self.model), "scores": dict(self.scores)}
        about["arrays"] = _checksums(arrays)
        content = save(
            {k: np.ascontiguousarray(v, dtype=np.float64) for k, v in arrays.items()},
            metadata={"interp": json_document(about).decode()},
        )
        write_atomically(Path(path), content)

    @classmethod
    def load(cls, path: str | Path) -> HeadProbe:
        """Read a probe.

        Raises:
            StoreError: the file cannot be read, or does not hold a probe.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load

        path = Path(path)
        try:
            content = read_bytes(path)
            arrays = load(content)
            size = int.from_bytes(content[:8], "little")
            about = stored_document(parse_json(content[8 : 8 + size])["__metadata__"]["interp"])
            parts = [arrays[name] for name in _ARRAYS]
            if about["arrays"] != _checksums(arrays):
                raise ValueError("its numbers were changed after it was written")
            places = tuple((str(s), int(n), int(h)) for s, n, h in about["places"])
            shapes = [p.shape for p in parts]
            if about["format"] != FORMAT or shapes != [(len(places),)] * 3 + [(3,)]:
                raise ValueError(f"format {about['format']!r} with arrays of shapes {shapes}")
            kind, classes, model = about["kind"], tuple(about["classes"]), about["model"]
            scores = about["scores"]
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error}") from error
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{path} does not hold a probe ({error}); train it again") from error
        mean, scale, weights, rest = parts
        linear = LinearProbe(mean, scale, weights, *map(float, rest))
        return cls(linear, kind, places, classes, model, scores)


def _checksums(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    return {name: document_checksum(x.tolist()) for name, x in arrays.items()}
