"""A small CLIP with a tokenizer, in a folder, whose heads write what is planted; and its images.

The text tower is random. In the last layer of the image tower L1H0 reads the patch in the middle
and writes the difference of the texts of the classes, L1H2 reads the corner and writes the same,
twice as strongly (the spurious cue), and L1H1 reads a third patch and writes the embedding of one
text. All else writes nothing that changes with the image.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

import interp
from interp.vision import text_embeddings

CLASSES = ("a red square", "a green square")
BANK = ("a dog", "a round table", "blue water", "two cats", "a red car", "grass")
PLANTED = BANK[1]
PATCHES = {"middle": 5, "corner": 0, "third": 10}
SIGNAL = 0.8  # brightness of a patch, of either sign; the rest of an image is 0


def tokenizer_of(texts: tuple[str, ...], *, ends: bool = True) -> Any:
    """Return a tokenizer of the words of some texts, with CLIP's marks of both ends."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = dict.fromkeys(word for text in texts for word in text.split())
    names = ["<pad>", "<unk>", *words, "<|startoftext|>", "<|endoftext|>"]
    vocabulary = {name: i for i, name in enumerate(names)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    if ends:
        first, last = ((name, vocabulary[name]) for name in names[-2:])
        made.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
            single=f"{first[0]} $A {last[0]}", special_tokens=[first, last]
        )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token=names[-2],
        eos_token=names[-1],
    )


def planted_clip() -> tuple[Any, Any]:
    """Return the module and its tokenizer."""
    tokenizer = tokenizer_of((*CLASSES, *BANK))
    sizes = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2}
    size = len(tokenizer)
    text = {
        "vocab_size": size,
        "max_position_embeddings": 8,
        "num_attention_heads": 3,
        "bos_token_id": size - 2,
        "eos_token_id": size - 1,
        "initializer_factor": 3.0,
    }
    vision = {"num_attention_heads": 3, "image_size": 16, "patch_size": 4}
    config = transformers.CLIPConfig(
        text_config=sizes | text, vision_config=sizes | vision, projection_dim=20
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module: Any = transformers.CLIPModel(config).eval()
        directions = torch.linalg.qr(torch.randn(24, 5)).Q
    read, own, *places = (directions - directions.mean(0)).T  # without a mean, as norms see them
    with torch.no_grad():
        _plant(module, tokenizer, read, own, dict(zip(PATCHES, places, strict=True)))
    return module, tokenizer


def _plant(
    module: Any, tokenizer: Any, read: Tensor, own: Tensor, places: dict[str, Tensor]
) -> None:
    tower = module.vision_model
    embeddings = tower.embeddings
    embeddings.class_embedding.copy_(4 * own)
    embeddings.position_embedding.weight.zero_()
    for name, patch in PATCHES.items():
        embeddings.position_embedding.weight[1 + patch] = 4 * places[name]
    embeddings.patch_embedding.weight.copy_(read[:, None, None, None].expand(-1, 3, 4, 4) / 16)
    for layer in tower.encoder.layers:
        for part in (layer.mlp.fc2, layer.self_attn.out_proj, layer.self_attn.v_proj):
            part.weight.zero_()
            part.bias.zero_()
    constant = own - own.mean()
    matrix = module.visual_projection.weight
    matrix -= torch.outer(matrix @ constant, constant) / constant.square().sum()
    to_embedding = matrix - matrix.mean(1, keepdim=True)  # the last norm removes the mean
    model = interp.load(module, tokenizer=tokenizer)
    red, green, word = torch.from_numpy(text_embeddings(model, [*CLASSES, PLANTED])).float()
    back = torch.linalg.pinv(to_embedding)
    attention = tower.encoder.layers[1].self_attn
    attention.q_proj.weight.zero_()
    attention.k_proj.weight.zero_()
    difference = back @ (red - green) / (back @ (red - green)).norm()
    written = back @ word / (back @ word).norm()
    for head, (name, direction) in enumerate(
        {"middle": 2 * difference, "third": written, "corner": 4 * difference}.items()
    ):
        first = 8 * head
        attention.q_proj.bias[first] = 30.0
        attention.k_proj.weight[first] = places[name]
        attention.v_proj.weight[first] = read
        attention.out_proj.weight[:, first] = direction


def clip_folder(folder: Path) -> Path:
    """Write the model, its tokenizer and the config of its image processor."""
    module, tokenizer = planted_clip()
    module.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    processor = {
        "image_processor_type": "CLIPImageProcessor",
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "size": {"shortest_edge": 16},
        "crop_size": {"height": 16, "width": 16},
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def cued_pictures(number: int = 48) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return images, classes and cues; half of the cues, of any strength, show the other class."""
    rng = np.random.default_rng(0)
    classes = np.arange(number) % 2
    cues = rng.choice([0, 1], number)
    cues[rng.random(number) < 0.2] = -1
    corner = np.where(cues < 0, 0, 1 - 2 * cues) * rng.uniform(0.2, 1, number)
    signs = np.stack(
        [1 - 2 * classes, corner, rng.choice([-1, 1], number) * rng.uniform(0.4, 1, number)]
    )
    pixels = np.zeros((number, 3, 16, 16), np.float32)
    for sign, patch in zip(signs, (PATCHES[n] for n in ("middle", "corner", "third")), strict=True):
        row, column = 4 * (patch // 4), 4 * (patch % 4)
        pixels[:, :, row : row + 4, column : column + 4] = SIGNAL * sign[:, None, None, None]
    return pixels, classes, cues


def picture_folder(folder: Path, number: int = 48) -> Path:
    """Write images in folders of their class, cues, the texts of the classes and a bank."""
    from PIL import Image

    pixels, classes, cues = cued_pictures(number)
    names = [f"{('red', 'green')[c]}/{i:02}.png" for i, c in enumerate(classes)]
    for name, image in zip(names, pixels, strict=True):
        path = folder / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.round((image + 1) * 127.5).astype(np.uint8).transpose(1, 2, 0)).save(
            path
        )
    with (folder / "cues.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            (name, ("red", "green", "")[cue]) for name, cue in zip(names, cues, strict=True)
        )
    (folder / "classes.txt").write_text("\n".join(CLASSES))
    (folder / "words.txt").write_text("\n".join(BANK))
    return folder
