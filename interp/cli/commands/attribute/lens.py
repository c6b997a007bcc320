"""Command `interp attribute lens`: what layers predict, through the logit lens or a tuned lens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.value_types import PromptFile
from interp.cli.vocabulary import FROM_1, Spelling
from interp.cli.wrapping import print_text
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.model.model import Model


def _check(run: Run) -> None:
    if all(run.values[name] is None for name in ("text", "tune", "direct")):
        raise OptionError("give --text, or --tune FILE, or --direct FILE")


@command(
    loading=("chat",),
    options={
        "target": Spelling(metavar="WORD|OTHER"),
        "tune": Spelling(type=PromptFile(), metavar="FILE"),
        "direct": Spelling(type=PromptFile(), metavar="FILE"),
        "position": Spelling(help="Position to read; negative counts from the end."),
        "top": Spelling(type=FROM_1),
    },
    out="file",
    check=_check,
    text="interp.report.printed:nothing",
    example="interp attribute lens gpt2 --text 'The keys are on the' --tune texts.txt",
)
def lens(
    model: Model,
    text: str | None = None,
    *,
    target: str | None = None,
    tune: Path | None = None,
    direct: Path | None = None,
    per: Literal["part", "source"] = "part",
    position: int = -1,
    seed: int = 0,
    top: int = 10,
) -> Any:
    """Print what every layer of MODEL predicts after a text.

    The logit lens applies the final norm and the unembedding to the residual stream after every
    layer. --tune adds a trained affine map per layer; its error is the KL divergence from the
    model's own distribution on held-out texts. --direct splits a logit into what heads, MLPs and
    the embedding add to it, with intervals and the same for random tokens. For the encoder of a
    model that translates or writes from sound, see DecoderLens: `interp study align` and
    `interp study speech` with -m decoder-lens.

    Args:
        text: text to analyse.
        target: token whose rank is printed at every depth; with --direct the logit that is split,
            minus that of OTHER.
        tune: train a tuned lens on the texts of FILE (one per line), print its error on held-out
            texts, and read the text through it.
        direct: split the logit of the target over heads, MLPs and the embedding, as means over the
            texts of FILE; a line may give its own target after a tab.
        per: with --direct: print a row per part, or per head and source token.
        position: position that is read.
        seed: seed of held-out texts and of random tokens.
        top: number of parts to print with --direct.
    """
    from interp.report.printed.lens import direct_text, lens_text, tuned_text

    tuned = result = None
    if tune is not None:
        from interp.attribution.evaluation.run import read_texts
        from interp.cli.progress import Voice
        from interp.lens import tuned_lens

        texts = read_texts(tune)
        with Voice.of_command(quiet=False).bars(model.name) as progress:
            result = tuned = tuned_lens(model, texts, seed=seed, progress=progress)
        print_text(tuned_text(tuned))
    if direct is not None:
        from interp.attribution.evaluation.run import targets_of
        from interp.lens import direct_logits

        texts, targets, contrasts = targets_of(direct, target)
        result = direct_logits(
            model, texts, targets, contrasts, split=per, position=position, seed=seed
        )
        print_text(direct_text(result, top))
    if text is not None:
        from interp.lens import logit_lens

        word = None if target is None else target.partition("|")[0]
        result = logit_lens(model, text, k=3, target=word, tuned=tuned)
        print_text(lens_text(result, position, "logit lens" if tuned is None else "tuned lens"))
    return result
