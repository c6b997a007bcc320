"""Steps of a profile: computed here, found in the folder of a stopped run, or of other shards."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from interp.core.errors import InterpError, OptionError
from interp.core.memory import return_freed
from interp.core.shards import Shard

if TYPE_CHECKING:
    from interp.core.protocols import Progress
    from interp.model.model import Model
    from interp.profiles.corpus import Sample
    from interp.profiles.rules import KeyRule


class ShardsMissing(InterpError):
    """Steps of other shards that are not finished, without which this shard cannot go on."""


class ProfileSteps:
    """Steps of a run, each with a result that can be stored as bytes.

    A phase is a list of steps that do not need each other. A shard computes its part of a phase;
    the next phase needs the whole of it.

    Args:
        model: the model.
        samples: the windows of each corpus, by its name.
        rules: the rules.
        sites: names of the attentions that are read.
        options: what the user asked for, by which two corpora of a run are compared.
        resume: folder with finished steps.
        shard: part of every phase that is computed here; all of it without.
        progress: called with the steps done and their number.
        total: number of steps.
        name: name of the analysis.
        complete: whether nothing can be asked later for which its steps would be of use.

    Raises:
        OptionError: a shard has no folder, or the corpus is not that of the other shards.
    """

    def __init__(
        self,
        model: Model,
        samples: Mapping[str, Sample],
        rules: Sequence[KeyRule],
        sites: Sequence[str],
        options: Mapping[str, Any],
        *,
        resume: str | os.PathLike | None = None,
        shard: Shard | None = None,
        progress: Progress | None = None,
        total: int = 0,
        name: str = "profile",
        complete: bool = True,
    ) -> None:
        self.name, self.progress, self.at, self.total = name, progress, 0, total
        self.shard, self.kept = shard, None
        if resume is None:
            if shard is not None:
                raise OptionError(
                    f"shard {shard} needs a folder that all shards see, for the finished steps"
                )
            return
        from interp.core.store import Store
        from interp.model.identity import identity_of

        settings = {
            "model": identity_of(model),
            "seed": [sample.facts["seed"] for sample in samples.values()],
            "rules": [rule.identity for rule in rules],
            "sites": [*sites],
        }
        store, weights = Store(resume), model.content_hash
        hashes = {name: sample.hash for name, sample in samples.items()}
        self.kept = store.steps(
            name, weights, settings | {"corpus": hashes}, temporary=complete and shard is None
        )
        for corpus, sample in samples.items():
            asked = settings | {"corpus": sample.facts["corpus"], "options": dict(options)}
            shards = store.steps(f"{name} shards", weights, asked | {"name": corpus})
            _require_same_corpus(shards, sample, shard)

    def advance(self) -> None:
        """Count one step."""
        self.at += 1
        if self.progress is not None:
            self.progress(self.name, self.at, self.total)

    def phase(
        self,
        names: Sequence[str],
        make: Callable[[int], Any],
        kind: Any,
        sizes: Sequence[int],
    ) -> list[Any]:
        """Return the results of a phase, of which only missing ones are computed."""
        known = self._known(names)
        mine = range(len(names)) if self.shard is None else self.shard.of(range(len(names)))
        results: dict[int, Any] = {}
        for at, name in enumerate(names):
            if name in known:
                self.at += sizes[at]
            elif at in mine:
                results[at] = make(at)
                return_freed()
                if self.kept is not None:
                    self.kept.add({name: results[at].to_bytes()})
        if self.shard is not None:
            known = self._known(names)
            missing = [name for name in names if name not in known]
            if missing:
                raise ShardsMissing(
                    f"{len(missing)} of {len(names)} steps of other shards are not done "
                    f"({', '.join(missing[:3])}{' ...' if len(missing) > 3 else ''}); run the same "
                    "command again when the other shards have ended: finished steps are not "
                    "repeated. Without --shard it does all that is left"
                )
        return [
            results[at] if at in results else kind.from_bytes(known[name])
            for at, name in enumerate(names)
        ]

    def _known(self, names: Sequence[str]) -> dict[str, bytes]:
        return self.kept.find(names) if self.kept is not None else {}


def _require_same_corpus(shards: Any, sample: Sample, shard: Shard | None) -> None:
    """Raise OptionError if other shards of the same run have read another corpus."""
    if shard is not None:
        shards.add({"corpus": sample.hash.encode()})
    known = shards.find(["corpus"]).get("corpus")
    if known is not None and known.decode() != sample.hash:
        raise OptionError(
            f"{sample.facts['corpus']} has changed since the shards of this run began, so their "
            "steps do not fit together; restore it, or begin again with another folder"
        )


class StoredArrays:
    """Base of results of steps: dataclasses of arrays, tensors, and lists that are not empty.

    They are kept as the bytes of one file, without pickles.
    """

    def to_bytes(self) -> bytes:
        """Return all fields as the bytes of one file; booleans take a bit each."""
        import numpy as np
        import torch

        parts = {}
        for name, value in vars(self).items():
            listed = isinstance(value, list)
            for at, x in enumerate(value if listed else [value]):
                kind = "tensor" if isinstance(x, torch.Tensor) else "array"
                array = np.asarray(x)
                shape = ",".join(map(str, array.shape)) if array.dtype == bool else ""
                key = f"{name}|{at if listed else ''}|{kind}|{shape}"
                parts[key] = np.packbits(array) if array.dtype == bool else array
        file = io.BytesIO()
        np.savez(file, **parts)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read what `to_bytes` wrote."""
        import numpy as np
        import torch

        values: dict[str, Any] = {}
        with np.load(io.BytesIO(content)) as file:
            for key in file.files:
                name, at, kind, stated = key.split("|")
                array = file[key]
                if stated:
                    shape = tuple(map(int, stated.split(",")))
                    bits = np.unpackbits(array, count=int(np.prod(shape)))
                    array = bits.reshape(shape).astype(bool)
                value = torch.from_numpy(array) if kind == "tensor" else array
                if at:
                    values.setdefault(name, []).append(value)
                else:
                    values[name] = value
        return cls(**values)
