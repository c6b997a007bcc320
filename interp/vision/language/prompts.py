"""Single prompts with a picture, the positions of the picture in them, and their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core.errors import OptionError, PromptError
from interp.model.calls.sites import Site
from interp.model.content import model_provenance, tensors_hash
from interp.model.inputs import image_token
from interp.model.single_prompts import pictured, single_prompts
from interp.model.views import joint_view

if TYPE_CHECKING:
    from interp.model.model import Model


@dataclass(frozen=True, eq=False)
class PicturePrompt:
    """One prompt with its picture.

    Args:
        inputs: input tensors of a batch of one.
        image: placeholders of the picture.
        answer: token that should follow; -1 where none was given.
    """

    inputs: dict[str, Any]
    image: Bool[Tensor, " position"]
    answer: int = -1

    def log_p(self, logits: Float[Tensor, " vocabulary"]) -> float:
        """Return log p(answer) by the logits after the last token."""
        return float(logits.log_softmax(-1)[self.answer])


def prompts_with_pictures(
    model: Model, inputs: Mapping[str, Any], answers: Sequence[int] | None = None
) -> tuple[Model, list[PicturePrompt]]:
    """Return the view of a model with its tower, and its prompts one by one."""
    view = joint_view(model)
    if not pictured(view, inputs):
        raise PromptError(
            f"{model.name}: these inputs hold no text with pictures; give the tensors of "
            "model.inputs(text=..., images=...)"
        )
    parts = single_prompts(view, inputs)
    token = image_token(model.config)
    if answers is not None and len(answers) != len(parts):
        raise PromptError(f"{len(answers)} answers for {len(parts)} prompts; give one for each")
    prompts = []
    for i, part in enumerate(parts):
        image = (part["input_ids"][0] == token).cpu()
        if not bool(image.any()):
            raise PromptError(f"prompt {i} holds no picture; leave it out")
        answer = -1 if answers is None else int(answers[i])
        if answers is not None and not 0 <= answer < model.d_vocab:
            raise PromptError(
                f"answer {i} is the token id {answer}; {model.name} knows 0 to {model.d_vocab - 1}"
            )
        prompts.append(PicturePrompt(part, image, answer))
    return view, prompts


def text_sites(view: Model) -> list[Site]:
    """Return the attentions over the text, in the order of layers."""
    sites = [s for s in view.sites if not s.of_tower and s.kind == "softmax"]
    return sorted(sites, key=lambda s: s.layer)


def logits_after(view: Model, inputs: Mapping[str, Any]) -> Tensor:
    """Return the logits after the last token of a single prompt, in float64."""
    with torch.no_grad():
        return view.run(inputs)[0, -1].double().cpu()


def answer_log_p(view: Model, prompt: PicturePrompt) -> float:
    """Return log p(answer) of a prompt."""
    return prompt.log_p(logits_after(view, prompt.inputs))


def selection_halves(count: int, seed: int) -> tuple[list[int], list[int]]:
    """Return random halves of the prompts: one to select on, the other to judge on."""
    if count < 4:
        raise PromptError(
            f"{count} prompts; what is found on some of them is judged on others, with an error: "
            "give at least 4"
        )
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    return sorted(order[: count // 2]), sorted(order[count // 2 :])


def provenance(view: Model, inputs: Mapping[str, Any], made_by: str, **options: Any) -> dict:
    """Return the provenance of a result on pictures."""
    tensors = {k: x for k, x in inputs.items() if isinstance(x, Tensor)}
    return model_provenance(view) | {
        "prompts": f"given {', '.join(sorted(tensors))}",
        "prompts_hash": tensors_hash(tensors),
        "n_prompts": len(inputs["input_ids"]),
        "options": options,
        "made_by": made_by,
    }


def require_option(fits: bool, what: str) -> None:
    """Raise an OptionError unless a condition holds."""
    if not fits:
        raise OptionError(what)
