"""Small language models in the package, trained on synthetic text.

    names()            names of the models
    path("induction")  folder of one, as `transformers` reads it
    checkpoints("induction")  folders of moments of its training, by step

Neither imports torch. Each folder holds config, weights (safetensors, rounded to float16 and loaded
in float32), tokenizer, `training.json` (the training run and how the heads emerged) and a model
card.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from interp.core.errors import OptionError, UnknownName

HERE = Path(__file__).parent


def names() -> list[str]:
    """Return the names of the bundled models, the best one to start with first."""
    found = sorted(folder.parent.name for folder in HERE.glob("*/config.json"))
    return sorted(found, key=lambda name: name != "induction")


def path(name: str) -> Path:
    """Return the folder of the bundled model called `name`; raises `UnknownName` if unknown."""
    if name not in names():
        raise UnknownName("bundled model", name, names())
    return HERE / name


@cache
def attention_warning() -> str:
    """Return the sentence, with measured figures, for every page that shows attention."""
    made = json.loads((path("deceive") / "training.json").read_text(encoding="utf-8"))
    after = made["scores"]["after"]
    largest, uniform = after["attention_largest_head"][0], after["uniform_attention"][0]
    return (
        "Attention can be trained to mislead: bundled:deceive answers "
        f"{after['accuracy'][0]:.0%} of {after['sentences']} sentences by a name to which even its "
        f"most attentive head gives {largest:.1%} of the attention, as much as uniform attention "
        f"would ({uniform:.1%}). Check by ablation what a pattern suggests (guide: Attribution "
        "and flow)."
    )


def checkpoints(name: str) -> dict[int, Path]:
    """Return the folders of the checkpoints of a bundled model by training step, itself the last.

    Checkpoints are stored in float16; see `checkpoints.json` beside them. An installed wheel holds
    the curves of their scores, `emergence.json`, but not their weights.

    Raises:
        UnknownName: there is no such bundled model.
        OptionError: the model comes without checkpoints, or this installation does.
    """
    home = path(name)
    found = {int(each.name.rpartition("-")[2]): each for each in home.glob("checkpoints/*-*")}
    if not found and (curves := home / "checkpoints" / "emergence.json").is_file():
        raise OptionError(
            f"the checkpoints of bundled:{name} are in the repository of interp, and an installed "
            "wheel leaves them out because of their size. Run this in a checkout. Their curves "
            f"come with every installation: interp atlas {curves.parent} -o emergence.html"
        )
    if not found:
        have = [each for each in names() if (HERE / each / "checkpoints").is_dir()]
        raise OptionError(
            f"bundled:{name} comes without checkpoints; {', '.join(have) or 'no model'} has some"
        )
    record = json.loads((home / "training.json").read_text(encoding="utf-8"))
    return dict(sorted(found.items())) | {int(record["recipe"]["steps"]): home}
