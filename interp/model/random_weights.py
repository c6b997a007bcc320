"""Copies of a model with random weights, as null models, and their kept scores."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from interp.core.documents import parse_json
from interp.core.errors import NotKept, StoreError
from interp.core.files import open_file
from interp.core.json_document import json_document, stored_document

if TYPE_CHECKING:
    import numpy as np

    from interp.model.initialisation import Initialisation
    from interp.model.model import Model

DRAWS = 6  # default number of draws of random weights
_KEPT = 2 * 2**30  # bytes of random models that are kept in memory for the next metric
_SMALL = 2**25  # bytes of a random model that is made whole, since parts would save nothing
_APART = 1_000_003  # step between the seeds of draws, so that different seeds share no draws
_FORMAT = "interp null 1"

DrawMeans = dict[str, "np.ndarray"]
"""Mean score of every head on one draw, `[head]` by name of the attention."""

_known: WeakKeyDictionary[Any, tuple[str, str | None]] = WeakKeyDictionary()


class WholeDraws(UserWarning):
    """Warning that large random models are made whole, with the memory that each of them takes."""


def random_init(
    model: Model, seed: int, *, by_part: Initialisation | None = None, streamed: bool | None = None
) -> Model:
    """Return the same architecture with new random weights; the global generator is unchanged."""
    # imported here, so that a command can read the default number of draws without torch
    from interp.core.random_state import drawn_with
    from interp.model.initialisation import NotApart, initialisation
    from interp.model.locate.probe import probe
    from interp.model.model import Model
    from interp.model.skeleton import parameter_bytes

    if streamed is None:
        streamed = parameter_bytes(model.module) > _KEPT
    try:
        by_part = by_part or initialisation(model)
        module = by_part.stream(seed) if streamed else by_part.fill(seed)
    except NotApart:
        with drawn_with(seed):
            module = model.untrained()
    name = f"{model.name} (random weights)"
    if model.ranks is None and {s.module for s in model.sites} <= {
        at for at, _ in module.named_modules()
    }:
        # The class is the same, so the sites found before still hold. A new search could miss
        # them: where random weights write almost nothing, streams have no distinct values. They
        # are searched on request, with the model that has them: now, while it is there.
        _ = [dict(site.streams) for site in model.sites]
        drawn = Model(module, name, model.sites, model.tokenizer, joint_sites=model.joint_sites)
        drawn.padding = model.padding.of_same(module, name)
        return drawn
    return probe(module, name, model.tokenizer)


def null_folder() -> Path:
    """Return the user's folder of kept nulls."""
    from interp_kernels.folders import cache_folder

    return cache_folder("nulls")


class KeptNulls:
    """Folders in which scores of random weights are kept, one file per metric and architecture.

    A file holds the scores of the first draws, as many as were needed so far. It is written whole
    or not at all, and its checksum is verified; a damaged one is set aside with a warning
    (DamagedKept), and its scores are computed again. Random weights are not kept.
    """

    def __init__(self, folders: Sequence[str | os.PathLike]) -> None:
        self.folders = [Path(folder) for folder in folders]

    @classmethod
    def of(cls, null_cache: bool | str | os.PathLike, beside: Path | None = None) -> KeptNulls:
        """Return the folders that an option names."""
        if null_cache is False:
            return cls(())
        folders = [] if beside is None else [beside / "nulls"]
        return cls([*folders, null_folder() if null_cache is True else null_cache])

    def find(self, name: str, key: str) -> list[DrawMeans]:
        """Return the scores of the first draws, none if there are none."""
        longest: list[DrawMeans] = []
        for folder in tuple(self.folders):
            path = _file(folder, name, key)
            try:
                with open_file(path) as content:
                    draws = _read(content.read(), key)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self._without(folder, f"cannot read {path}: {error.strerror or error}")
                continue
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                self._set_aside(path, error)
                continue
            longest = max(longest, draws, key=len)
        return longest

    def write(self, name: str, key: str, draws: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Keep the scores of the first draws; warns NotKept where that is not possible."""
        from interp.core.files import write_atomically

        if not self.folders:
            return
        content = _content(key, draws)
        for folder in tuple(self.folders):
            try:
                write_atomically(_file(folder, name, key), content, durable=False)
            except StoreError as error:
                self._without(folder, str(error))

    def _set_aside(self, path: Path, error: Exception) -> None:
        from interp.core.files import set_aside

        try:
            set_aside(path, error)
        except StoreError as refused:
            self._without(path.parent, str(refused))

    def _without(self, folder: Path, why: str) -> None:
        """Use a folder no longer, with one warning."""
        self.folders.remove(folder)
        warnings.warn(f"scores of random weights are not kept: {why}", NotKept, stacklevel=4)


class RandomWeights:
    """Several random initialisations of one architecture, each made when first needed.

    Args:
        model: the model whose architecture is drawn.
        seed: seed of the first draw.
        draws: their number.
        kept: where scores are kept; nowhere by default.
        again: they will be asked for more than once, so small ones stay in memory. Others are made
            part by part in each run, so that no random model is in memory as a whole.
    """

    def __init__(
        self,
        model: Model,
        seed: int,
        draws: int = DRAWS,
        kept: KeptNulls | None = None,
        *,
        again: bool = True,
    ) -> None:
        self.model, self.seed, self.draws = model, seed, draws
        self.again = again
        self.kept = kept or KeptNulls(())
        self._models: dict[int, Model] = {}

    def __len__(self) -> int:
        return self.draws

    def __iter__(self) -> Iterator[Model]:
        for draw in range(self.draws):
            yield self._drawn(draw)

    def scores(
        self,
        asked: Mapping[str, Mapping[str, Any]],
        run: Callable[[Model, list[str], str], Mapping[str, DrawMeans]],
        *,
        keep: bool = True,
    ) -> dict[str, list[DrawMeans]]:
        """Return the scores of every draw by label; a draw that is kept is not made."""
        keys = self._keys(asked) if keep else {}
        scores = {
            x: self.kept.find(file_start(x), keys[x])[: self.draws] if x in keys else []
            for x in asked
        }
        short = [label for label in asked if len(scores[label]) < self.draws]
        for draw in range(self.draws):
            todo = [label for label in short if len(scores[label]) == draw]
            if not todo:  # all are known, or none has a score on the draw before
                continue
            what = self.pass_name(draw)
            for label, means in run(self._drawn(draw), todo, what).items():
                scores[label].append(means)
                if label in keys:
                    self.kept.write(file_start(label), keys[label], scores[label])
        return scores

    def draw(self, draw: int) -> Model:
        """Return one of the draws, counted from 0."""
        return self._drawn(draw)

    def pass_name(self, draw: int) -> str:
        """Return the name of the pass of one draw, as progress shows it."""
        return f"null: random weights {draw + 1}/{self.draws}"

    def unknown(self, asked: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Return the labels whose scores are not kept for every draw; see `scores`."""
        keys = self._keys(asked)
        return [
            label
            for label in asked
            if label not in keys or len(self.kept.find(file_start(label), keys[label])) < self.draws
        ]

    def _keys(self, asked: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """Return the identity of each label's scores; none where they cannot be kept."""
        architecture = _architecture(self.model) if self.kept.folders else None
        if architecture is None:
            return {}
        common = {"architecture": architecture, "seed": self.seed, "drawn": "by part"}
        return {x: json.dumps(common | {"of": dict(of)}, sort_keys=True) for x, of in asked.items()}

    def _drawn(self, draw: int) -> Model:
        from interp.model.skeleton import parameter_bytes

        if draw in self._models:
            return self._models[draw]
        size = parameter_bytes(self.model.module)
        how: dict[str, Any] = {}
        if size > (_KEPT if self.again else _SMALL) and self._by_part is not None:
            how = {"by_part": self._by_part, "streamed": True}
        drawn = random_init(self.model, self.seed + _APART * draw, **how)
        if self.again and not how and size * (len(self._models) + 1) <= _KEPT:
            self._models[draw] = drawn
        return drawn

    @cached_property
    def _by_part(self) -> Initialisation | None:
        """Way in which parts are drawn; None, with a warning, where they cannot be drawn apart."""
        from interp.model.initialisation import NotApart, initialisation
        from interp.model.skeleton import parameter_bytes

        try:
            return initialisation(self.model)
        except NotApart as error:
            size = parameter_bytes(self.model.module) / 2**20
            warnings.warn(
                f"{self.model.name}: each of {self.draws} draws of random weights is made whole, "
                f"which takes {size:,.0f} MiB beside the model: {error}",
                WholeDraws,
                stacklevel=4,
            )
            return None


class DrawnElsewhere(RandomWeights):
    """Draws whose scores are read from files, so that their weights are not drawn here."""

    def _drawn(self, draw: int) -> Any:
        return None


def _architecture(model: Model) -> str | None:
    """Return the hash of all that decides random weights and their scores; None if unknown."""
    import torch

    if model.elsewhere is not None or model.ranks is not None or model.active_edits:
        return None
    config = model.config.to_dict() if hasattr(model.config, "to_dict") else vars(model.config)
    # What may change between two calls, compared before the rest is computed again.
    now = repr(
        (
            {name: x for name, x in config.items() if name != "_name_or_path"},
            model.attention,
            model.dtype,
            model.device,
            torch.get_num_threads(),
            torch.get_float32_matmul_precision(),
            torch.are_deterministic_algorithms_enabled(),
        )
    )
    known = _known.get(model.module)
    if known is None or known[0] != now:
        from interp.model.identity import architecture_of

        about = architecture_of(model)
        text = None if about is None else json.dumps([about, now, _where(model)], sort_keys=True)
        known = now, text and hashlib.sha256(text.encode()).hexdigest()
        _known[model.module] = known
    return known[1]


def _where(model: Model) -> list[str]:
    """Return the processor, and the attention of each layer as it was found in the model."""
    import torch

    name = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else ""
    # without the streams: they may be searched on request, and attention scores do not read them
    names = [f.name for f in fields(model.sites[0]) if f.name != "streams"]
    sites = (repr([getattr(site, name) for name in names]) for site in model.sites)
    return [name, torch.backends.cpu.get_cpu_capability(), *sites]


def streams_found(model: Model) -> list[str]:
    """Return the residual streams of each layer, which scores of weights depend on, as text."""
    return [repr(sorted(site.streams.items())) for site in model.sites]


def file_start(label: str) -> str:
    """Return the beginning of the names of the files of a label."""
    return "".join(c if c.isalnum() else "-" for c in label.lower())[:40]


def _file(folder: Path, name: str, key: str) -> Path:
    return folder / f"{name}.{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _content(key: str, draws: Sequence[Mapping[str, np.ndarray]]) -> bytes:
    import numpy as np

    values = [
        {
            site: base64.b64encode(np.ascontiguousarray(x, "<f8").tobytes()).decode()
            for site, x in draw.items()
        }
        for draw in draws
    ]
    return json_document({"format": _FORMAT, "key": parse_json(key), "values": values})


def _read(content: bytes, key: str) -> list[DrawMeans]:
    """Read the draws of a file; ValueError, KeyError or TypeError when it is damaged."""
    import numpy as np

    whole = stored_document(content)
    if whole["format"] != _FORMAT or whole["key"] != parse_json(key):
        raise ValueError("it belongs to other scores")
    return [
        {
            site: np.frombuffer(base64.b64decode(x), "<f8").astype(np.float64)
            for site, x in draw.items()
        }
        for draw in whole["values"]
    ]
