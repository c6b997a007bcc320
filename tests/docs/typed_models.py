"""Small models under the names that command lines of pages give."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

STORY = (
    "Once upon a time there was a little girl named Lily . She had a red ball and a black dog . "
    "Tom met Lily in the park . Lily gave Tom the ball . The dog saw a cat and it ran . "
    "Then the girl said that she was happy , and Ben went to the store with Mary and John ."
)
MORE = (
    "The keys are on the table floor a cat sleeps rug kitten naps animal is dog What this image "
    "capital of France Paris I you he she her him His class yes no Therefore answer 42 Who came "
    "Hello how can cannot help with that"
)
WORDS = MORE.split()


def tokenizer(chat: bool = False) -> Any:
    """A tokenizer of bytes that knows the words of the tasks, and numbers two digits at a time."""
    from circuits.speller import speller
    from fixtures.chats import TEMPLATES
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r" ?\d\d"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=8000,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=special,
        show_progress=False,
    )
    words = sorted({*speller().get_vocab(), *(f" {w}" for w in (*WORDS, *STORY.split()))})
    made.train_from_iterator([w for w in words for _ in range(4)], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<|endoftext|>", eos_token="<|endoftext|>"
    )
    if chat:
        fast.chat_template = TEMPLATES["marked"]
    return fast


def gpt2(path: Path, layers: int = 12, heads: int = 12) -> None:
    """A GPT-2 with random weights, of 12 layers of 12 heads as the published one."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    words = tokenizer()
    torch.manual_seed(0 if path.name == "gpt2" else sum(map(ord, path.name)))
    config = GPT2Config(
        vocab_size=len(words),
        n_positions=1024,
        n_embd=4 * heads,
        n_layer=layers,
        n_head=heads,
        bos_token_id=0,
        eos_token_id=0,
        initializer_range=0.5,
    )
    GPT2LMHeadModel(config).save_pretrained(path)
    words.save_pretrained(path)


def llama(path: Path, chat: bool = False) -> None:
    """A Llama of 12 layers of 12 heads with random weights, for prompts of any length."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    words = tokenizer(chat)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=12,
        max_position_embeddings=131072,
        bos_token_id=0,
        eos_token_id=0,
        initializer_range=0.2,
    )
    LlamaForCausalLM(config).save_pretrained(path)
    words.save_pretrained(path)


def tuned(path: Path) -> None:
    """The bundled induction model with a little noise, which its name decides."""
    import torch
    from transformers import AutoModelForCausalLM

    from interp import bundled

    source = bundled.path("induction")
    module = AutoModelForCausalLM.from_pretrained(source)
    torch.manual_seed(sum(map(ord, path.name)))
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.02 * weight.std() * torch.randn_like(weight))
    module.save_pretrained(path)
    for file in source.glob("tokenizer*"):
        shutil.copy(file, path)


def llava(path: Path) -> None:
    from fixtures.pictures import save_llava

    save_llava(path, words=(*WORDS, "cat", "dog"), num_hidden_layers=4, hidden_size=512)


def bert(path: Path) -> None:
    from syntax.small_bert import save_bert

    save_bert(path, sorted({*STORY.split(), *WORDS}))


def whisper(path: Path) -> None:
    from interp.planted.with_sound import spoken_words

    spoken = spoken_words()
    config = spoken.model.generation_config
    config.alignment_heads = [[0, 0], [0, 1]]  # as the published one's
    config._from_model_config = False  # else loading makes another one
    spoken.save(path)


def clip(path: Path) -> None:
    from vision.two_towers import clip_folder

    clip_folder(path)


def vision(name: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        from transformers import CLIPImageProcessor
        from vision.towers import module_of

        module = module_of(name).float()
        if hasattr(module, "classifier"):  # the classes are the folders of the photos
            module.config.id2label = dict(enumerate(("green", "red")))
            module.config.label2id = {"green": 0, "red": 1}
        module.save_pretrained(path)
        side = getattr(module.config, "image_size", None)
        if side:
            size = {"height": side, "width": side}
            CLIPImageProcessor(size=size, crop_size=size).save_pretrained(path)

    return write


def mixer(name: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        from zoo.mixers import build

        build(name).save_pretrained(path)
        tokenizer().save_pretrained(path)

    return write


MODELS: dict[str, Callable[[Path], None]] = {
    "gpt2": gpt2,
    **dict.fromkeys(("MODEL", "big-model", "models/mine"), llama),
    **dict.fromkeys(("my-chat-model", "models/chat"), lambda path: llama(path, chat=True)),
    **dict.fromkeys(
        (
            "base",
            "tuned",
            "fine-tune",
            "my-fine-tune",
            "seed-0",
            "seed-1",
            "other-0",
            "other-1",
            "tune-a",
            "tune-b",
            "run-0",
            "run-1",
            "run/checkpoint-1",
            "run/checkpoint-2",
        ),
        tuned,
    ),
    **dict.fromkeys(("bert-base-cased", "models/encoder"), bert),
    "openai/whisper-tiny": whisper,
    **dict.fromkeys(("models/llava", "my-llava"), llava),
    "my-clip": clip,
    "my-vit": vision("ViTForImageClassification"),
    "my-dinov2": vision("Dinov2WithRegistersForImageClassification"),
    "my-siglip": vision("SiglipModel"),
    "state-spaces/mamba2-130m": mixer("mamba2"),
    "Qwen/Qwen3-Next-80B-A3B-Instruct": mixer("qwen3_next"),
}
