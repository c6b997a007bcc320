"""Attention that a server's own hook recorded, read as a model whose prompts are those recorded.

A folder holds `run.json` and one safetensors file per prompt:

    {"format": "interp run 1", "model": "my-model", "vocabulary": 32000,
     "layers": [{"heads": 12, "causal": true, "window": null}, ...],
     "prompts": [{"tokens": [1, 5, 7], "file": "0.safetensors"}, ...]}

A file holds the tensor `pattern.L` of every layer L, `[head, query_pos, key_pos]`, in any floating
type: the attention probabilities of the prompt. `vocabulary` is the number of token ids; `causal`
is true unless stated, and `window` the number of keys that a query sees, itself included.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from jaxtyping import Bool, Float
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from interp.core.documents import parse_json
from interp.core.errors import LoadError, OptionError
from interp.core.files import read_bytes
from interp.core.prompts import Prompts
from interp.model.calls.sites import Site
from interp.model.sources.folder import RUN
from interp.model.sources.remote import Asked, RemoteModel

FORMAT = "interp run 1"
_SUM = 1e-2  # of a row of probabilities in 16 bits; less where a sink takes a part


class _Nothing(nn.Module):
    """Module without weights, which tells what the inputs of the recorded model are."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        from transformers import PretrainedConfig

        self.config = PretrainedConfig.from_dict({"vocab_size": vocabulary})
        self.none = nn.Parameter(torch.empty(0, device="meta"), requires_grad=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> NoReturn:
        raise OptionError("attention was recorded; the model itself is not here")


class RecordedModel(RemoteModel):
    """Recorded attention of some prompts: what reads patterns of these prompts can be scored."""

    @property
    def prompts(self) -> Prompts:
        """The recorded prompts."""
        return Prompts(tuple(self.runs.files), "recorded")  # type: ignore[attr-defined]


class Recorded:
    """Statistics of recorded patterns, in the form in which a remote run returns them."""

    def __init__(self, folder: Path, windows: Mapping[int, int | None]) -> None:
        self.where, self.folder, self.windows = f"the recording {folder}", folder, windows
        self.files: dict[tuple[int, ...], Path] = {}

    def means(
        self,
        inputs: Mapping[str, Tensor],
        sites: Sequence[Site],
        asked: Sequence[Sequence[Asked]],
        real: Sequence[Tensor],
        steps: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the mean over counted rows of each statistic, `[prompt, head]`, for every site."""
        if steps:
            self._refuse("edits need the model")
        results: list[dict[str, Any]] = [{"finite": True, "means": {}} for _ in sites]
        masks = real[0]
        for row, ids in enumerate(inputs["input_ids"]):
            tokens = tuple(ids[masks[row]].tolist())
            if tokens not in self.files:
                self._refuse(
                    f"a prompt of {len(tokens)} tokens is not among the {len(self.files)} recorded "
                    "ones; score those (prompts=None) without a null of other tokens (null='none')"
                )
            path = self.files[tokens]
            try:
                opened = safe_open(path, "pt")
            except (OSError, SafetensorError) as error:
                raise LoadError(f"{path} cannot be read: {error}") from error
            with opened as file:
                for number, (site, mine) in enumerate(zip(sites, asked, strict=True)):
                    pattern = self._pattern(file, path, site, len(tokens))
                    kept = masks[row]
                    for label, what, target in mine:
                        hit = None if target is None else target[row % len(target)][kept][:, kept]
                        value = _mean(pattern, what, hit, self._seen(site, len(tokens)))
                        results[number]["means"].setdefault(label, []).append(value)
        for each in results:
            each["means"] = {label: torch.stack(x) for label, x in each["means"].items()}
        return results

    def logits(self, *_: Any, **__: Any) -> NoReturn:
        """Raise: nothing but attention was recorded."""
        self._refuse("logits, ablation and edits need the model")

    def z_totals(self, *_: Any, **__: Any) -> NoReturn:
        """Raise: nothing but attention was recorded."""
        self._refuse("outputs of heads were not recorded")

    def step_means(self, *_: Any, **__: Any) -> NoReturn:
        """Raise: the model cannot go on."""
        self._refuse("generation needs the model")

    def _refuse(self, why: str) -> NoReturn:
        raise OptionError(f"{why}; this is {self.where}, which holds attention of given prompts")

    def _seen(self, site: Site, length: int) -> Bool[Tensor, "query_pos key_pos"]:
        place = torch.arange(length)
        behind = place[:, None] - place
        seen = behind >= 0 if site.causal else torch.ones(length, length, dtype=torch.bool)
        window = self.windows[site.layer]
        return seen if window is None else seen & (behind < window)

    def _pattern(
        self, file: Any, path: Path, site: Site, length: int
    ) -> Float[Tensor, "head query_pos key"]:
        name = f"pattern.{site.layer}"
        if name not in file.keys():  # noqa: SIM118  a safetensors file is no mapping
            raise LoadError(f"{self.where}: {path} holds no {name}")
        pattern = file.get_tensor(name).float()
        wanted = (site.n_heads, length, length)
        if tuple(pattern.shape) != wanted:
            raise LoadError(
                f"{self.where}: {name} of {path} is {tuple(pattern.shape)}; expected {wanted}"
            )
        rows = pattern.sum(-1)
        if not bool(torch.isfinite(pattern).all()) or float(pattern.min()) < 0:
            raise LoadError(f"{self.where}: {name} of {path} holds NaN or negative weights")
        if float(rows.max()) > 1 + _SUM:
            raise LoadError(
                f"{self.where}: rows of {name} of {path} add up to {float(rows.max()):.3g}; "
                "expected probabilities, after the softmax"
            )
        if bool((pattern * ~self._seen(site, length)).any()):
            raise LoadError(
                f"{self.where}: {name} of {path} has weight on keys that its layer does not "
                "see; check the order of the axes, and causal and window in run.json"
            )
        return pattern


def _mean(
    pattern: Float[Tensor, "head query_pos key_pos"],
    what: str,
    target: Bool[Tensor, "query_pos key_pos"] | None,
    seen: Bool[Tensor, "query_pos key_pos"],
) -> Float[Tensor, " head"]:
    """Return the mean of a statistic over its rows; NaN where no row counts."""
    if target is not None:
        hit = seen & target
        return (pattern * hit).sum(-1)[:, hit.any(-1)].double().mean(-1)
    if what == "entropy":
        value = -(pattern * pattern.clamp_min(1e-38).log()).sum(-1)
    elif what == "distance":
        place = torch.arange(pattern.shape[-1])
        value = (pattern * (place[:, None] - place).abs()).sum(-1)
    else:
        value = pattern.amax(-1)
    return value.double().mean(-1)


def recorded_run(folder: Path, name: str | None = None, tokenizer: Any = None) -> RecordedModel:
    """Return the recorded attention of a folder as a model."""
    try:
        about = parse_json((folder / RUN).read_text(encoding="utf-8"))
        if about.get("format") != FORMAT:
            raise ValueError(f"the format is {about.get('format')!r}, expected {FORMAT!r}")
        layers = [
            (int(x["heads"]), bool(x.get("causal", True)), x.get("window")) for x in about["layers"]
        ]
        prompts = [(tuple(map(int, x["tokens"])), str(x["file"])) for x in about["prompts"]]
        vocabulary = int(about["vocabulary"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LoadError(f"{folder / RUN} cannot be used: {error!r}"[:300]) from error
    runs = Recorded(folder, {i: window for i, (_, _, window) in enumerate(layers)})
    for tokens, file in prompts:
        path = (folder / file).resolve()
        if folder.resolve() not in path.parents or not path.is_file():
            raise LoadError(f"{folder / RUN} names {file!r}, which is not a file of the folder")
        runs.files[tokens] = path
    if not layers or not runs.files:
        raise LoadError(f"{folder / RUN} names no layers, or no prompts")
    digest = hashlib.sha256(read_bytes(folder / RUN)).hexdigest()[:16]
    sites = tuple(
        Site(
            "decoder" if causal else "encoder",
            i,
            f"layers.{i}",
            0,
            heads,
            heads,
            0,
            0,
            watched=False,
            has_qk=False,
            causal=causal,
        )
        for i, (heads, causal, _) in enumerate(layers)
    )
    return RecordedModel(
        _Nothing(vocabulary),
        name or str(about.get("model") or folder.name),
        sites,
        tokenizer,
        source=f"{runs.where}, {RUN} {digest}",
        runs=runs,
    )
