"""Command `interp list models`: list of the models that come with the package."""

from __future__ import annotations

from pathlib import Path

import click

from interp.cli.loading import debug_option


@click.command(epilog="Example: interp list models")
@click.option("--variants", "variants_too", is_flag=True, help="Also list attention variants.")
@debug_option
def models(variants_too: bool) -> None:
    """List the models that come with the package."""
    from interp import bundled, planted
    from interp.planted import variants

    width = max(map(len, [*bundled.names("all"), *planted.PLANTED]))
    click.echo("Trained from scratch, with learned heads (interp score bundled:NAME):")
    for name in bundled.names("all"):
        click.echo(f"  {name:<{width}}  {first_sentence(bundled.path(name))}")
    click.echo(
        "\nBuilt by hand, so that the function of each head is known (interp score planted:NAME):"
    )
    for name, summary in planted.PLANTED.items():
        click.echo(f"  {name:<{width}}  {summary}")
    click.echo(
        f"\nRandom weights, {len(variants.variant_names())} attention variants of the literature "
        "(interp score variant:NAME)"
        + (":" if variants_too else "; list: interp list models --variants")
    )
    wide = max(map(len, variants.variant_names()))
    for name in variants.variant_names() if variants_too else ():
        click.echo(f"  {name:<{wide}}  {variants.summary(name)}")
    click.echo(
        "\nOther models: a folder with config.json and safetensors, or a Hugging Face hub id."
    )


def first_sentence(folder: Path) -> str:
    """Return the first sentence of a model card, below its title and its YAML."""
    card = folder / "README.md"
    if not card.is_file():
        return ""
    text = card.read_text(encoding="utf-8")
    if text.startswith("---\n"):
        text = text[4:].partition("\n---\n")[2]
    blocks = (" ".join(block.split()) for block in text.split("\n\n"))
    first = next((block for block in blocks if block and not block.startswith("#")), "")
    return first.partition(". ")[0].rstrip(".")
