"""Small models in the package, trained on synthetic text or on generated images.

    names()            names of the language models
    names("images")    names of the vision transformers
    path("induction")  folder of one, as `transformers` reads it
    checkpoints("induction")  folders of moments of its training, by step
    own_texts("bundled:stories")  file of texts that it was not trained on, if one comes with it
    usual_task("bundled:stories")  task that it is asked if none is named

Neither imports torch. Each folder holds config, weights (safetensors, rounded to 16 bits and loaded
in float32), tokenizer or image preprocessor, `training.json` (the training run and how the heads
emerged) and a model card.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

from interp.core.documents import parse_json
from interp.core.errors import OptionError, UnknownName
from interp.core.resources import folder
from interp.core.shell_line import shell_line
from interp.core.text_file import read_lines

HERE = Path(__file__).parent


def names(reads: Literal["text", "images", "all"] = "text") -> list[str]:
    """Return the names of the bundled models, the best one to start with first."""
    if reads not in ("text", "images", "all"):
        raise OptionError(f"reads={reads!r} is unknown; known: text, images, all")
    folders = sorted(file.parent for file in HERE.glob("*/model.safetensors"))
    sees = {each.name: (each / "preprocessor_config.json").is_file() for each in folders}
    chosen = [name for name in sees if reads == "all" or sees[name] == (reads == "images")]
    return sorted(chosen, key=lambda name: (sees[name], name != "stories"))


def path(name: str) -> Path:
    """Return the folder of the bundled model called `name`; raises `UnknownName` if unknown.

    An installed wheel leaves out the weights of the siblings of `stories`, and says so.
    """
    if name not in names("all"):
        if (HERE / name / "config.json").is_file():
            raise OptionError(
                f"bundled:{name} is in the repository of interp, and an installed wheel leaves it "
                "out because of its size. Run this in a checkout."
            )
        raise UnknownName("bundled model", name, names("all"))
    return HERE / name


def own_texts(source: str) -> Path | None:
    """Return the file of held-out texts of a bundled model, by its name or folder; else None.

    A sibling, called as its base with an addition, has those of its base.
    """
    name = source.removeprefix("bundled:")
    home = HERE / name if name != source else Path(source).resolve()
    file = HERE / home.name.partition("-")[0] / "held_out.jsonl"
    return file if home.parent == HERE and file.is_file() else None


def texts_with(model: Any) -> list[str]:
    """Return the held-out texts that come with a loaded model; none with most."""
    own = own_texts(str(getattr(model.config, "name_or_path", "")))
    return [parse_json(line)["text"] for line in read_lines(own) if line] if own else []


def plain_texts(model: Any) -> list[str]:
    """Return the texts that come with a model, or those of data/prompts.txt."""
    prose = folder("data") / "prompts.txt"
    return texts_with(model) or [line for line in read_lines(prose) if line]


def usual_task(*sources: str) -> str | None:
    """Return the task of `interp circuit` that models are asked by default, if all have one."""
    own = sources and all(each.partition("-")[0] == "bundled:stories" for each in sources)
    return "stories:owner" if own else None


@cache
def attention_warning() -> str:
    """Return the sentence, with measured figures, for every page that shows attention."""
    record = parse_json((HERE / "deceive" / "training.json").read_text(encoding="utf-8"))
    after = record["scores"]["after"]
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

    Checkpoints are stored in 16 bits; see `checkpoints.json` beside them. An installed wheel holds
    the curves of their scores, `emergence.json`, but not their weights.
    """
    home = path(name)
    folders = {int(each.name.rpartition("-")[2]): each for each in home.glob("checkpoints/*-*")}
    if not folders and (curves := home / "checkpoints" / "emergence.json").is_file():
        raise OptionError(
            f"the checkpoints of bundled:{name} are in the repository of interp, and an installed "
            "wheel leaves them out because of their size. Run this in a checkout. Their curves "
            "come with every installation: "
            + shell_line("atlas", curves.parent, "-o", "emergence.html")
        )
    if not folders:
        have = [each for each in names("all") if (HERE / each / "checkpoints").is_dir()]
        raise OptionError(
            f"bundled:{name} comes without checkpoints; with some: {', '.join(have) or 'no model'}"
        )
    record = parse_json((home / "training.json").read_text(encoding="utf-8"))
    return dict(sorted(folders.items())) | {int(record["recipe"]["steps"]): home}
