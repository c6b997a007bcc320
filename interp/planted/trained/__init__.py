"""Small GPT-2s that were trained to hold a known algorithm, among heads that have no effect.

    trained_model("names")      # also interp.load("trained:names")
    trained_card("names")               # how well it agrees with the algorithm, and its training

`training/train_known.py` trains them by strict interchange intervention training (Gupta et al.
2024, "InterpBench"). The algorithms are in `cases`. The list `TRAINED` is read
without importing torch.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.documents import parse_json
from interp.core.errors import UnknownName

if TYPE_CHECKING:
    from transformers import GPT2LMHeadModel

    from interp.planted.trained.cases import Case

HERE = Path(__file__).parent

TRAINED: dict[str, str] = {
    "induction": "after `a b ... a` comes b, by a previous-token head and an induction head",
    "names": "of two names, the one that is not repeated: duplicate, inhibition and mover heads",
    "brackets": "whether brackets are balanced, by a head for depth, an MLP and a head for errors",
    "retrieval": "the value of a key that is asked for first: query, key and value heads",
    "suppression": "the first letter, unless it comes again: a copying head and a suppressing one",
    "two_circuits": "induction, and copying with suppression, by two heads each",
    "backup": "the letter after a marker, with a head that takes over if the first finds none",
    "shared": "induction, and the letter after a marker, both from one previous-token head",
}
# Models with several tasks, each read at a position of its own.
SEVERAL_TASKS: dict[str, tuple[str, ...]] = {
    "two_circuits": ("induction", "suppression"),
    "shared": ("induction", "marked"),
}


def untrained(case: Case) -> GPT2LMHeadModel:
    """Return the model before its training, from torch's current random state."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=len(case.tokens),
        n_positions=case.length,
        n_embd=case.width,
        n_layer=case.layers,
        n_head=case.heads,
        n_inner=2 * case.width,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        tie_word_embeddings=False,
        initializer_range=0.08,
        bos_token_id=0,
        eos_token_id=None,
        dtype="float32",
    )
    return GPT2LMHeadModel(config)


def trained_model(name: str) -> GPT2LMHeadModel:
    """Build the model of this name from its stored weights."""
    import torch
    from safetensors.torch import load_file

    from interp.core.random_state import drawn_with
    from interp.planted.trained.cases import CASES

    if name not in TRAINED:
        raise UnknownName("trained model", name, TRAINED)
    with drawn_with(None), torch.device("cpu"):
        model = untrained(CASES[name]).float()
    stored = load_file(HERE / f"{name}.safetensors")
    model.load_state_dict({key: x.float() for key, x in stored.items()}, strict=True)
    model.config.name_or_path = f"trained:{name}"
    return model.eval()


@cache
def trained_card(name: str) -> dict[str, Any]:
    """Return what was measured on a model and how it was trained."""
    if name not in TRAINED:
        raise UnknownName("trained model", name, TRAINED)
    return parse_json((HERE / f"{name}.json").read_text(encoding="utf-8"))
