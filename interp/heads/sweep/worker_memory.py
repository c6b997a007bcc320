"""Estimate of the memory of a scoring process, from files, before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interp.core.documents import parse_json
from interp.core.errors import PromptError
from interp.core.prompt_file import prompt_text, read_prompt_file

BASE_BYTES = 700 * 2**20
"""Resident memory of a process with the packages loaded and a small model."""
_KEPT_DRAWS = 2 * 2**30  # random weights in memory; larger ones are made part by part
_STORED = 2**24  # patterns of a layer that "auto" stores; see interp.heads.scoring
_TILES = 2**26  # of a layer whose patterns are computed in tiles
_DEFAULT_PROMPTS, _DEFAULT_TOKENS = 16, 49  # see interp.core.prompts.repeats
_LONG = (
    2048  # tokens from which --max-length makes one prompt; see interp.heads.sweep.scored_models
)
_LETTERS = 2  # of a token, at least: an estimate that is rather too large
_SIZES = {"float16": 2, "bfloat16": 2, "float64": 8}
_NAMES = {
    "width": ("hidden_size", "n_embd", "d_model", "dim"),
    "inner": ("intermediate_size", "ffn_dim", "n_inner", "d_ff", "d_mlp"),
    "heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "vocabulary": ("vocab_size", "d_vocab"),
}


def worker_bytes(run: Any, source: str) -> int:
    """Estimate the memory of a worker.

    Packages, weights, random weights for the null, and the activations of a forward pass with the
    patterns of one layer. A model that is not a folder on this machine counts as a small one.
    """
    folder = Path(source).expanduser()
    if source.startswith("bundled:"):
        from interp import bundled

        folder = bundled.path(source.removeprefix("bundled:"))
    if not folder.is_dir():
        return BASE_BYTES
    weights = sum(f.stat().st_size for f in folder.glob("*.safetensors"))
    draws = 0 if run.null == "none" else run.null_draws
    whole = draws if draws * weights <= _KEPT_DRAWS else int(weights <= _KEPT_DRAWS)
    copies = whole + (not run.loading.offload)
    return BASE_BYTES + weights * copies + activation_bytes(run, folder)


def activation_bytes(run: Any, folder: Path) -> int:
    """Estimate the activations of a forward pass, and the patterns and scores of one layer."""
    try:
        config = parse_json((folder / "config.json").read_bytes())
        sizes = {name: _number(config, names) for name, names in _NAMES.items()}
    except (OSError, ValueError, AttributeError):
        return 0
    if not sizes["width"] or not sizes["heads"]:
        return 0
    batch, tokens = _largest_batch(run)
    item = _SIZES.get(str(config.get("dtype") or config.get("torch_dtype")), 4)
    inner = sizes["inner"] or 4 * sizes["width"]
    # residual stream, its norm, q, k, v, z and the attention output; the MLP's gate and product
    forward = batch * tokens * item * (7 * sizes["width"] + 3 * inner)
    logits = batch * tokens * max(item, 4) * sizes["vocabulary"]
    pattern = 4 * batch * sizes["heads"] * tokens**2
    stored = run.engine == "stored" or (run.engine == "auto" and pattern <= _STORED)
    # scores, patterns and their product with a target
    return forward + logits + (3 * pattern if stored else min(3 * pattern, _TILES))


def _number(config: Mapping[str, Any], names: tuple[str, ...]) -> int:
    """Return a size of the model, or of its part that reads text."""
    for part in (config, config.get("text_config") or {}, config.get("llm_config") or {}):
        for name in names:
            if isinstance(size := part.get(name), int):
                return size
    return 0


def _largest_batch(run: Any) -> tuple[int, int]:
    """Return the prompts of the largest batch, and the tokens of the longest prompt."""
    number, tokens = _DEFAULT_PROMPTS, run.max_length or _DEFAULT_TOKENS
    if run.prompt_file is not None:
        try:
            if run.max_length is not None:
                number, tokens = 1, min(run.max_length, len(prompt_text(run.prompt_file)))
            else:
                prompts = read_prompt_file(run.prompt_file)
                number = len(prompts)
                tokens = max(
                    -(-len(x) // _LETTERS) if isinstance(x, str) else len(x) for x in prompts
                )
        except PromptError:
            return 1, 1  # every worker reports it
    elif run.max_length is not None and run.max_length > _LONG:
        number = 1
    return min(run.batch_size, number), tokens
