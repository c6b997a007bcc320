"""Tasks: prompts with one number per prompt that measures the model's performance.

The number is computed from the logits of a few positions, which the task declares, so that no other
logits are computed. Values are stored per prompt, and standard errors are computed from them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.model.inputs import require_tensor_inputs

if TYPE_CHECKING:
    from interp.model.model import Model

TaskInputs = Mapping[str, Tensor]

ReadRows = Callable[
    [Float[Tensor, "row d_vocab"], Int[Tensor, " row"], Float[Tensor, "row d_vocab"] | None],
    Float[Tensor, " row"],
]
"""Function of the logits of rows, their indices in the task, and the clean logits.

It returns a value per row.
"""

ReadPrompt = Callable[[Float[Tensor, "position d_vocab"], int], Any]
"""Function that returns a value from all logits of one prompt and the prompt's index."""


@dataclass(frozen=True, eq=False)
class Task:
    """Prompts and a scalar for each, in `unit`; see `interp.causal.measures` for common ones.

    A row is one position of one prompt whose logits are read; rows are numbered prompt by prompt.

    Args:
        positions: for each prompt the positions whose logits are read, counted from the first
            real token; `(0,)` for a model with one output per input.
        higher_is_better: the direction of the scalar.
        read_rows: a value per row; a prompt's value is the mean of its rows' values.
        read_prompt: alternatively, a value from all rows of a prompt at once.
        needs_clean: `read_rows` compares with the logits of the undisturbed run.
        has_gradient: the value is a differentiable function of the logits.
        vocabulary: the ids whose logits are read; `read_rows` then receives only these columns, in
            this order. By default all ids.
        corrupted: prompts in which the behaviour is absent, for resampling and attribution
            patching.
        chance: the value under uniform guessing, if the measure has one.
    """

    name: str
    prompts: Prompts | TaskInputs
    positions: tuple[tuple[int, ...], ...]
    unit: str
    higher_is_better: bool
    read_rows: ReadRows | None = None
    read_prompt: ReadPrompt | None = None
    needs_clean: bool = False
    has_gradient: bool = True
    vocabulary: tuple[int, ...] | None = None
    corrupted: Prompts | TaskInputs | None = None
    detail: str = ""
    chance: float | None = None
    _start: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if (self.read_rows is None) == (self.read_prompt is None):
            raise OptionError(f"task {self.name}: give exactly one of read_rows and read_prompt")
        if len(self.positions) != len(self):
            raise OptionError(
                f"task {self.name}: positions for {len(self.positions)} of {len(self)} prompts; "
                "give one list per prompt"
            )
        start = [0]
        for i, positions in enumerate(self.positions):
            if not positions:
                raise OptionError(
                    f"task {self.name}: prompt {i} has no position to read; remove the prompt"
                )
            start.append(start[-1] + len(positions))
        object.__setattr__(self, "_start", tuple(start))
        if self.corrupted is not None and size(self.corrupted) != len(self):
            raise PromptError(
                f"task {self.name}: {size(self.corrupted)} corrupted prompts for {len(self)} clean "
                "ones; each clean prompt needs its own"
            )

    def __len__(self) -> int:
        return size(self.prompts)

    @property
    def clusters(self) -> tuple[str, ...] | None:
        """Label per prompt if prompts are dependent, otherwise None; see `Prompts`."""
        return self.prompts.clusters if isinstance(self.prompts, Prompts) else None

    @property
    def sign(self) -> int:
        """Direction of the task: 1 if higher is better, -1 if lower is better.

        The value of a game is the product of both, so that a player's contribution is positive if
        the player helps.
        """
        return 1 if self.higher_is_better else -1

    def with_corrupted(self, corrupted: Any, model: Model) -> Task:
        """Return the task with corrupted prompts (texts, ids or input tensors), one per prompt."""
        if not isinstance(corrupted, Mapping):
            corrupted = Prompts.of(corrupted, model)
        return replace(self, corrupted=corrupted)

    def rows(self, which: Sequence[int]) -> Int[Tensor, " row"]:
        """Return the indices of the rows of these prompts, in order."""
        return torch.tensor([r for i in which for r in range(self._start[i], self._start[i + 1])])

    def values(
        self,
        logits: Float[Tensor, "row d_vocab"],
        which: Sequence[int],
        clean: Float[Tensor, "row d_vocab"] | None = None,
    ) -> Float[Tensor, " prompt"]:
        """Compute the scalar of each prompt in `which` from the logits of its rows.

        Rows are ordered prompt by prompt. `clean` holds the same rows of the undisturbed run, for
        tasks that need them.
        """
        counts = [len(self.positions[i]) for i in which]
        if self.read_prompt is not None:
            parts = logits.split(counts)
            return torch.stack(
                [self._scalar(part, i) for part, i in zip(parts, which, strict=True)]
            )
        assert self.read_rows is not None
        per_row = self.read_rows(logits, self.rows(which).to(logits.device), clean)
        per_row = per_row.double()
        owner = torch.arange(len(which), device=logits.device)
        count = torch.tensor(counts, device=logits.device)
        owner = owner.repeat_interleave(count)
        total = torch.zeros(len(which), dtype=per_row.dtype, device=logits.device)
        return total.index_add(0, owner, per_row) / count

    def _scalar(self, logits: Tensor, prompt: int) -> Tensor:
        assert self.read_prompt is not None
        value = torch.as_tensor(self.read_prompt(logits, prompt), device=logits.device)
        if value.numel() != 1:
            raise OptionError(
                f"task {self.name}: the function returned shape {tuple(value.shape)} for prompt "
                f"{prompt}; it must return one number per prompt"
            )
        return value.reshape(()).double()

    @property
    def hash(self) -> str:
        """Return the sha256 of the prompts, the corrupted prompts, positions and measure."""
        parts = (self.name, self.detail, self.positions, _hash(self.prompts), _hash(self.corrupted))
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def about(self) -> dict[str, Any]:
        """Return the task's provenance."""
        design = self.prompts.design if isinstance(self.prompts, Prompts) else "given tensors"
        return {
            "task": self.name,
            "task_detail": self.detail,
            "task_hash": self.hash,
            "higher_is_better": self.higher_is_better,
            "prompts": design,
            "prompts_hash": _hash(self.prompts),
            "n_prompts": len(self),
            "rows": self._start[-1],
            "corrupted": self.corrupted is not None,
        }

    def __repr__(self) -> str:
        better = "higher" if self.higher_is_better else "lower"
        much = f"{len(self)} prompts, {self._start[-1]} rows"
        return f"Task({self.name}: {much}, {self.unit}, {better} is better)"


def size(prompts: Prompts | TaskInputs) -> int:
    """Count the prompts."""
    if isinstance(prompts, Prompts):
        return len(prompts)
    require_tensor_inputs(prompts, "the model")
    return int(next(x for x in prompts.values() if isinstance(x, Tensor)).shape[0])


def part(prompts: Prompts | TaskInputs, which: Sequence[int]) -> Prompts | dict[str, Tensor]:
    """Select some of the prompts."""
    if isinstance(prompts, Prompts):
        return prompts.part(which)
    index, n = torch.as_tensor(list(which)), size(prompts)
    return {
        name: x[index.to(x.device)] if isinstance(x, Tensor) and x.dim() and x.shape[0] == n else x
        for name, x in prompts.items()
    }


def real_tokens(prompts: Prompts | TaskInputs) -> Bool[Tensor, "batch pos"] | None:
    """Return the mask of logit columns with tokens; None if the model reads no tokens."""
    if isinstance(prompts, Prompts):
        return (prompts if prompts.decoder is None else prompts.decoder).padded()[1]
    for ids, mask in (
        ("decoder_input_ids", "decoder_attention_mask"),
        ("input_ids", "attention_mask"),
    ):
        if ids in prompts:
            given = prompts.get(mask)
            return torch.ones_like(prompts[ids], dtype=torch.bool) if given is None else given != 0
    return None


def token_ids(prompts: Prompts | TaskInputs) -> list[list[int]]:
    """Return the tokens at the positions of the logits, without padding."""
    if isinstance(prompts, Prompts):
        read = prompts if prompts.decoder is None else prompts.decoder
        return [list(p) for p in read.ids]
    ids = prompts.get("decoder_input_ids", prompts.get("input_ids"))
    if ids is None:
        return []
    real = real_tokens(prompts)
    assert real is not None
    return [row[keep].tolist() for row, keep in zip(ids, real, strict=True)]


def _hash(prompts: Prompts | TaskInputs | None) -> str:
    if prompts is None or isinstance(prompts, Prompts):
        return "" if prompts is None else prompts.hash
    digest = hashlib.sha256()
    for name, x in sorted(prompts.items()):
        digest.update(name.encode())
        if isinstance(x, Tensor):
            digest.update(
                x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            )
    return digest.hexdigest()
