"""Command `interp texts anchors`: sentences of a text that later ones attend to and depend on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from interp.cli.between import aligned_columns, printed_rows, voice_of
from interp.cli.loading import Loading, import_first, loading_options
from interp.cli.shared_options import model_argument
from interp.cli.traced_prompts import saved_in
from interp.cli.value_types import OUT_FOLDER, PromptFile
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.heads.chains import Anchors, Chain
    from interp.model.model import Model


@click.command(
    epilog="Example: interp texts anchors MODEL --file trace.txt --answer ' 42' -o results"
)
@model_argument
@click.option("--file", "files", multiple=True, type=PromptFile(), metavar="FILE",
    help="File of one long text; repeatable.")  # fmt: skip
@click.option("--question", default="", metavar="TEXT",
              help="Text after each chain, such as ' Therefore the answer is'.")  # fmt: skip
@click.option("--answer", default="", metavar="TEXT",
              help="The answer, on which effects are measured.")  # fmt: skip
@click.option("--method", "ways", multiple=True,
              type=click.Choice(["attention", "suppression", "resampling"]),
              help="Analysis; repeatable. By default attention and suppression, and resampling if "
                   "there is an answer.")  # fmt: skip
@click.option("--n-heads", "k", default=20, show_default=True, type=click.IntRange(1), metavar="K",
              help="Number of receiver heads.")  # fmt: skip
@click.option("--min-distance", "apart", metavar="N", default=4, show_default=True,
              type=click.IntRange(1),
              help="Ignore attention over fewer than N sentences.")  # fmt: skip
@click.option("--most", type=click.IntRange(1), metavar="N",
              help="Hide only the N sentences of each text that receive most attention, and N at "
                   "random.")  # fmt: skip
@click.option("--rollouts", default=16, show_default=True, type=click.IntRange(2),
              help="Number of continuations that are sampled from before each "
                   "sentence.")  # fmt: skip
@click.option("--max-new-tokens", "tokens", type=click.IntRange(1), metavar="N",
              help="Maximum number of tokens of a continuation; the rest of the text by "
                   "default.")  # fmt: skip
@click.option("--temperature", default=1.0, show_default=True,
              type=click.FloatRange(0, min_open=True),
              help="Softmax temperature for predictions and sampling.")  # fmt: skip
@click.option("--beyond", is_flag=True,
              help="Allow texts longer than the context that the config states.")  # fmt: skip
@click.option("--batch-size", default=4, show_default=True, type=click.IntRange(1),
              help="Number of hidden sentences per forward pass; does not affect the "
                   "numbers.")  # fmt: skip
@click.option("--top", default=5, show_default=True, type=click.IntRange(0), metavar="K",
              help="Number of heads and of sentences to print.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of everything random.")
@click.option("--json", "form", flag_value="json", help="Print only the rows, as JSON.")
@click.option("--csv", "form", flag_value="csv", help="Print only the rows, as CSV.")
@click.option("-o", "--out", type=OUT_FOLDER, metavar="DIR",
              help="Folder for receivers and anchors as .json, .csv and .html.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def anchors(
    source: str, files: tuple[Path, ...], question: str, answer: str, ways: tuple[str, ...],
    k: int, apart: int, most: int | None, rollouts: int, tokens: int | None, temperature: float,
    beyond: bool, batch_size: int, top: int, seed: int, form: str | None, out: Path | None,
    quiet: bool, loading: Loading, imports: tuple[str, ...],
) -> None:  # fmt: skip
    """Find the sentences of long texts (FILE) that later ones attend to and depend on.

    Receiver heads are those whose attention from far behind goes to few sentences. Hiding a
    sentence from all later tokens, and resampling it, measure what depends on it. Without a file,
    chains of random tokens with planted links are made, and the measures are compared with them.
    """
    if "resampling" in ways and files and not answer:
        raise OptionError("--method resampling measures the answer; give it with --answer")
    import_first(imports)
    voice = voice_of(quiet)
    with voice.bars(source) as tell:
        model = loading.checked(source, source, tell)
    from interp.heads.chains import receiver_heads, thought_anchors

    chains = _chains(model, files, question, answer, seed)
    if not files:
        voice.note(f"no file given: {len(chains)} chains of random tokens with planted links")
    with voice.bars("anchors") as tell:
        heads = receiver_heads(model, chains, apart=apart, beyond=beyond, seed=seed, progress=tell)
        found = thought_anchors(
            model, chains, ways=ways or None, k=k, apart=apart, most=most, rollouts=rollouts,
            tokens=tokens, temperature=temperature, beyond=beyond, batch_size=batch_size,
            seed=seed, progress=tell,
        )  # fmt: skip
    if form is not None:
        printed_rows(found, form)
    else:
        click.echo(f"Receiver heads of {model.name} on {len(chains)} texts:")
        rows = [("head", "kurtosis", "shuffled tokens", "attention per token")]
        frame = heads.top(top).to_pandas()
        for r in frame.to_dict("records"):
            rows.append((f"L{r['layer']}H{r['head']}", f"{r['score']:.2f}", f"{r['null']:.2f}",
                         f"{r['far_attention']:.2g}"))  # fmt: skip
        click.echo(aligned_columns(rows))
        _told(found, top)
        if not files:
            _planted(found, chains)
    saved_in(out, model.name, heads, "receivers", voice)
    saved_in(out, model.name, found, "anchors", voice)


def _chains(
    model: Model, files: tuple[Path, ...], question: str, answer: str, seed: int
) -> list[Chain]:
    from interp.core.prompt_file import prompt_text
    from interp.heads.chains import Chain, linked_chains

    if not files:
        return linked_chains(model, chains=3, sentences=12, length=6, anchors=1, links=3, seed=seed)
    names = [f.stem for f in files]
    if len(set(names)) < len(names):
        names = [str(f) for f in files]
    return [
        Chain.of_text(model, prompt_text(f), question=question, answer=answer, name=name)
        for f, name in zip(files, names, strict=True)
    ]


def _told(found: Anchors, top: int) -> None:
    import numpy as np

    for measure in found.measures:
        rows = [("text", "sentence", "score", "average", "")]
        part = found[measure].to_pandas()
        part = part.dropna(subset="score").sort_values("score", ascending=False).head(top)
        for r in part.to_dict("records"):
            words = " ".join(r["text"].split())
            rows.append((r["chain"], str(r["sentence"]), f"{r['score']:.3g}", f"{r['null']:.3g}",
                         words[:60] + "..." * (len(words) > 60)))  # fmt: skip
        click.echo(f"\n{measure} ({part['unit'].iloc[0] if len(part) else 'no sentence'}):")
        click.echo(aligned_columns(rows))
    if len(found.measures) > 1:
        rows = [("measure", "other", "Spearman", "95 % interval", "p")]
        for r in found.agreement().to_dict("records"):
            if np.isfinite(r["spearman"]):
                interval = f"{r['low']:.2f} to {r['high']:.2f}"
                rows.append((r["measure"], r["other"], f"{r['spearman']:.2f}", interval,
                             f"{r['p']:.3f}"))  # fmt: skip
        click.echo(f"\nAgreement over sentences:\n{aligned_columns(rows)}")


def _planted(found: Anchors, chains: list[Chain]) -> None:
    import numpy as np

    hits = total = 0
    for number, chain in enumerate(chains):
        mine = np.flatnonzero(found.of_chain == number)
        for later, earlier in chain.depends:
            hits += int(found.depends[mine[later]] == earlier)
            total += 1
    if "suppression" in found.measures:
        click.echo(
            f"\nPlanted links: in {hits} of {total}, the sentence whose suppression changes the "
            "later one most is the planted one."
        )
