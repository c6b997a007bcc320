"""Claims on the tokens of pictures inside text, and the small models that read pictures."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

import interp
from interp.core.random_state import drawn_with
from interp.core.rank_statistics import paired_spearman
from interp.core.result_rows import ResultRows
from interp.planted import image_text
from interp.vision import language
from papers.finding import SEEDS, Numbers, claim, counted
from papers.fitting import step_down

SIDE, PATCH, SLOTS, KINDS, OBJECTS = 4, 8, 16, 6, 4
BEGIN, IMAGE, ASK, KIND, COLOUR, VOCAB = 1, 2, 3, 4, 10, 16
USUAL, STEPS, BATCH = 0.6, 1200, 64
SIZES: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
VISION = SIZES | {"num_hidden_layers": 2, "image_size": SIDE * PATCH, "patch_size": PATCH}
KEPT = Path(__file__).parents[2] / "results" / "picture_models"


class Pictures:
    """Pictures with their questions and answers.

    A share of the objects, `usual`, has the colour of its kind.
    """

    def __init__(self, number: int, seed: int, usual: float = USUAL) -> None:
        draw = torch.Generator().manual_seed(seed)
        patterns = torch.randn(KINDS, PATCH, PATCH, generator=torch.Generator().manual_seed(0))
        colours = torch.randn(KINDS, 3, generator=torch.Generator().manual_seed(1))
        kinds = torch.rand(number, KINDS, generator=draw).argsort(1)[:, :OBJECTS]
        other = (kinds + torch.randint(1, KINDS, kinds.shape, generator=draw)) % KINDS
        own = torch.rand(kinds.shape, generator=draw) < usual
        hues = torch.where(own, kinds, other)
        self.places: Int[Tensor, "picture object"] = torch.rand(
            number, SLOTS, generator=draw
        ).argsort(1)[:, :OBJECTS]
        patches = 0.5 * torch.randn(number, SLOTS, 3, PATCH, PATCH, generator=draw)
        shown = patterns[kinds][:, :, None].sign() * 0.5 + 1
        shown = shown * F.normalize(colours, dim=-1)[hues][..., None, None] * 2
        patches.scatter_add_(1, self.places[:, :, None, None, None].expand_as(shown), shown)
        grid = patches.unflatten(1, (SIDE, SIDE)).permute(0, 3, 1, 4, 2, 5)
        self.pixels: Float[Tensor, "picture 3 row column"] = grid.flatten(4).flatten(2, 3)
        self.asked, self.answers = kinds[:, 0] + KIND, hues[:, 0] + COLOUR
        self.seen = torch.zeros(number, KINDS * 2)  # which kinds and colours, for the class token
        self.seen.scatter_(1, kinds, 1.0).scatter_(1, hues + KINDS, 1.0)
        self.objects: Bool[Tensor, "picture patch"] = torch.zeros(
            number, SLOTS, dtype=torch.bool
        ).scatter_(1, self.places, True)

    def inputs(self) -> dict[str, Tensor]:
        """Return prompts: a first token, the picture, and the question."""
        ids = torch.full((len(self.asked), SLOTS + 3), IMAGE)
        ids[:, 0], ids[:, -2], ids[:, -1] = BEGIN, ASK, self.asked
        return {"input_ids": ids, "pixel_values": self.pixels}


def _in_text() -> Any:
    text: Any = {
        "vocab_size": VOCAB,
        "bos_token_id": BEGIN,
        "eos_token_id": None,
        "pad_token_id": 0,
    }
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**VISION),
        text_config=transformers.LlamaConfig(
            **SIZES, **text, num_hidden_layers=4, max_position_embeddings=64
        ),
        image_token_index=IMAGE,
        vision_feature_layer=-1,
    )
    return transformers.LlavaForConditionalGeneration(config)


def _crossed() -> Any:
    sizes: Any = {"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 8, "vocab_size": VOCAB}
    sizes |= {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0, "bos_token_id": BEGIN}
    text = transformers.GPT2Config(**sizes, add_cross_attention=True, is_decoder=True)
    vision = transformers.ViTModel(transformers.ViTConfig(**VISION), add_pooling_layer=False)
    return transformers.VisionEncoderDecoderModel(
        encoder=vision, decoder=transformers.GPT2LMHeadModel(text)
    )


def question(pictures: Pictures) -> dict[str, Tensor]:
    """Return the inputs of the model with cross attention."""
    ids = torch.stack([torch.full_like(pictures.asked, ASK), pictures.asked], 1)
    return {"pixel_values": pictures.pixels, "decoder_input_ids": ids}


def _train(kind: str, seed: int) -> Any:
    with drawn_with(seed):
        model = _in_text() if kind == "text" else _crossed()
        seen = nn.Linear(64, 2 * KINDS)
    adam = torch.optim.Adam([*model.parameters(), *seen.parameters()])
    first: list[Tensor] = []
    tower = model.model.vision_tower if kind == "text" else model.encoder
    handle = tower.register_forward_hook(lambda m, a, out: first.append(out[0][:, 0]))
    for step in range(STEPS):
        batch = Pictures(BATCH, 10_000 * (seed + 1) + step)
        given = batch.inputs() if kind == "text" else question(batch)
        first.clear()
        loss = F.cross_entropy(model(**given).logits[:, -1], batch.answers)
        # as in CLIP, the class token stands for the whole picture
        loss = loss + F.binary_cross_entropy_with_logits(seen(first[0]), batch.seen)
        rate = 2e-3 * min(1.0, step / 100) * (1 - step / STEPS)
        step_down(adam, loss, rate, clip=True)
    handle.remove()
    return model.eval()


@cache
def trained(kind: str, seed: int) -> interp.Model:
    """Return a trained model: `text`, a LLaVA, or `cross`, a ViT and a decoder that attends to it.

    Training takes about a minute; kept weights are loaded.
    """
    code = "".join(map(inspect.getsource, (Pictures, _in_text, _crossed, _train)))
    settings = hashlib.sha256(f"{code}{USUAL, STEPS, BATCH, VISION}".encode()).hexdigest()[:10]
    path = KEPT / f"{kind}-{seed}-{settings}.pt"
    if path.is_file():
        model = _in_text() if kind == "text" else _crossed()
        model.load_state_dict(torch.load(path, weights_only=True))
    else:
        model = _train(kind, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), path)
    return interp.load(model.eval(), name=f"pictures-{kind}-{seed}")


NUMBER = 120
BLUR = 2.0  # standard deviation of noise on pictures: models err, towards what is usual


@cache
def _asked(seed: int, blur: float = 0.0) -> Pictures:
    """Pictures whose asked object never has the colour that is usual for its kind."""
    pictures = Pictures(NUMBER, 900_000 + seed, usual=0.0)
    draw = torch.Generator().manual_seed(seed)
    pictures.pixels += blur * torch.randn(pictures.pixels.shape, generator=draw)
    return pictures


def _changes(
    edit: Callable[..., ResultRows], blur: float = 0.0, **how: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return the change that an edit makes per picture, and the one with random tokens."""
    asked = [(trained("text", seed), _asked(seed, blur)) for seed in SEEDS]
    found = [edit(model, p.inputs(), p.answers.tolist(), **how) for model, p in asked]
    changes = [np.concatenate([getattr(f, x)[0] for f in found]) for x in ("per_prompt", "random")]
    return changes[0], changes[1]


@cache
def _dropped(by: str, layer: int) -> tuple[np.ndarray, np.ndarray]:
    return _changes(language.drop_tokens, layer=layer, drop=0.75, by=by, n_random=3)


@cache
def _contrasted(branch: str) -> tuple[np.ndarray, np.ndarray]:
    return _changes(language.contrast_pictures, BLUR, branches=(branch,), outliers=4)


def _looks(seed: int) -> tuple[Float[np.ndarray, "picture patch"], ...]:
    """Return attention to patches: of the tower's class token, and of the text's last token."""
    model, p = trained("text", seed), _asked(seed)
    with torch.no_grad():
        tower = model.joint.capture(p.inputs(), ["pattern"], layers=1, stack="vision")
        first = tower["pattern", 1, "vision"][:, :, 0, 1:].mean(1)
        text = model.joint.capture(p.inputs(), ["pattern"], stack="decoder")
        last = [text["pattern", i, "decoder"][:, :, -1, 1:17].mean(1) for i in range(4)]
    return first.numpy(), torch.stack(last).mean(0).numpy()


@claim("DAMRO")
def damro() -> Numbers:
    """Compare the attention of tower and text; contrast blurred pictures with outliers alone."""
    alike, outside = [], []
    for seed in SEEDS:
        cls, text = _looks(seed)
        alike += paired_spearman(cls, text).tolist()
        for each, shown in zip(cls, _asked(seed).objects.numpy(), strict=True):
            outside.append(1 - shown[np.argsort(-each)[:4]].mean())
    change, random = _contrasted("outliers")
    return alike, outside, change, change - random


@claim("Don't Miss the Forest for the Trees")
def blind_tokens() -> Numbers:
    """Contrast answers on blurred pictures with a run on the blind tokens, or on random ones."""
    change, random = _contrasted("blind")
    there = np.isfinite(random)
    return change, counted((change - random)[there], "pictures with blind tokens")


@claim("See What You Are Told")
def visual_sinks() -> Numbers:
    """Find the sinks by massive dimensions; move their attention; remove them, or random tokens."""
    planted = image_text(prior=0.65, distracted=0.27)
    model = interp.load(planted.model, name="distracted")
    inputs, answers = planted.prompts(40)
    markers = planted.layout(40)[2]
    sinks = language.visual_sinks(model, inputs)
    hits = [sinks.sinks[n] == (2 + markers[i],) for n, i in enumerate(sinks.judged)]
    moved = language.redistribution(model, inputs, answers, last_layer=True)
    gain = moved.per_prompt[0] - moved.random[0]
    loss = []
    for i in range(40):
        one = {k: x[i : i + 1] for k, x in inputs.items()}
        mask, log_p = torch.ones_like(one["input_ids"]), []
        for seen in (1, 0):
            mask[0, 2 + markers[i]] = seen
            log_p.append(model.module(**one, attention_mask=mask).logits[0, -1].log_softmax(-1))
        loss.append(float((log_p[0] - log_p[1])[answers[i]].detach()))
    return np.mean(hits), loss, gain


@claim("[CLS] Token Tells Everything")
def class_token() -> Numbers:
    """Drop three quarters of the picture by the class token, by the text, or at random."""
    change, random = _dropped("class_token", 2)
    by_text, _ = _dropped("attention", 2)
    return change - random, change - by_text


@claim("VFlowOpt")
def flow() -> Numbers:
    """Drop three quarters of the picture before the text, by relevance and entropy."""
    change, random = _dropped("flow", 0)
    attention, _ = _dropped("class_token", 0)
    return change - random, change - attention


@claim("Efficient LLaMA-3.2-Vision")
def trimmed() -> Numbers:
    """Trim half of the image features by the first cross attention, or at random."""
    model, pictures = trained("cross", 0), Pictures(NUMBER, 900_000, usual=0.0)
    given, target = question(pictures), pictures.answers
    with torch.no_grad():
        first = model.capture(given, ["pattern"], layers=0, stack="cross")
        mass: Tensor = first["pattern", 0, "cross"].mean((1, 2))
    draw = torch.Generator().manual_seed(0)
    heads = [f"L{layer}H{h}" for layer in range(1, 4) for h in range(4)]
    losses = []
    for rank in (None, mass, torch.rand(mass.shape, generator=draw)):
        edits = []
        if rank is not None:
            gone = rank < rank.median(1, keepdim=True).values

            def trim(pattern: Tensor, gone: Tensor = gone) -> Tensor:
                left = pattern * ~gone[:, None, None]
                return left / left.sum(-1, keepdim=True)

            edits = [interp.model.set_pattern(heads, trim, stack="cross")]
        with torch.no_grad(), model.edited(*edits):
            logits = model.run(given)[:, -1]
        losses.append(F.cross_entropy(logits, target, reduction="none").numpy())
    top = mass.sort(1, descending=True).values[:, : mass.shape[1] // 2].sum(1)
    return top, losses[1] - losses[0], losses[1] - losses[2]
