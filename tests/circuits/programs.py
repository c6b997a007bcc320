"""Programs compiled by Tracr, as stored weights: tests of circuits need neither Tracr nor jax.

python tests/circuits/programs.py       # compiles again (pip install 'interp[tracr]')
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from interp.planted.compiled import CompiledConfig, CompiledTransformer, Program, edges_of

FILE = Path(__file__).with_name("programs.npz")
WORDS: dict[str, list[Any]] = {
    "frac_prevs": ["x", "a", "b"], "reverse": [1, 2, 3, 4], "sort": [1, 2, 3, 4],
    "hist": ["a", "b", "c"],
}  # fmt: skip
LONGEST = {"frac_prevs": 6, "reverse": 5, "sort": 5, "hist": 5}
SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "head_dim",
         "d_mlp", "n_out", "max_position_embeddings", "causal")  # fmt: skip


def compile_program(name: str) -> tuple[Any, Program]:
    """Return what Tracr compiles, and the torch model made of it."""
    from tracr.compiler import compiling, lib
    from tracr.rasp import rasp

    from interp.planted.compiled import compiled

    source = {
        "frac_prevs": lambda: lib.make_frac_prevs(rasp.tokens == "x"),
        "reverse": lambda: lib.make_reverse(rasp.tokens),
        "sort": lambda: lib.make_sort(rasp.tokens, rasp.tokens, max_seq_len=5, min_key=1),
        "hist": lib.make_hist,
    }[name]()
    made = compiling.compile_rasp_to_model(
        source, set(WORDS[name]), LONGEST[name], compiler_bos="BOS"
    )
    return made, compiled(made, output=source.label, name=name)


@cache
def stored_program(name: str) -> Program:
    """Return a program from the stored weights."""
    with np.load(FILE) as file:
        about = json.loads(str(file[f"{name}/about"]))
        prefix = f"{name}/weights/"
        weights = {
            key.removeprefix(prefix): torch.tensor(file[key]).float()
            for key in file.files
            if key.startswith(prefix)
        }
    module = CompiledTransformer(CompiledConfig(**about["sizes"], name_or_path=f"tracr:{name}"))
    module.load_state_dict(weights, strict=True)
    module = module.float().eval()
    tokens = dict(about["tokens"])
    words = [tokens[word] for word in WORDS[name]]
    return Program(name, module, tokens, about["bos"], edges_of(module, words))


def store() -> None:
    """Compile all programs and write the file."""
    held: dict[str, np.ndarray] = {}
    for name in WORDS:
        program = compile_program(name)[1]
        config: Any = program.module.config
        about = {
            "sizes": {size: getattr(config, size) for size in SIZES},
            "tokens": list(program.tokens.items()), "bos": program.bos,
        }  # fmt: skip
        held[f"{name}/about"] = np.array(json.dumps(about))
        held |= {
            f"{name}/weights/{key}": value.numpy()
            for key, value in program.module.state_dict().items()
        }
    np.savez_compressed(FILE, allow_pickle=False, **held)


if __name__ == "__main__":
    store()
