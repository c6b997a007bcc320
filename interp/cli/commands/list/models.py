"""Command `interp list models`: list of the models that come with the package."""

from __future__ import annotations

from interp.cli.making import command
from interp.cli.run import Run


@command(over="nothing", out=None, example="interp list models")
def models(run: Run, *, variants: bool = False) -> None:
    """List the models that come with the package.

    Args:
        run: the run.
        variants: also list attention variants.
    """
    from interp import bundled, planted
    from interp.planted import variants as families
    from interp.report.printed.listing import first_sentence

    width = max(map(len, [*bundled.names("all"), *planted.PLANTED]))
    run.say("Trained from scratch, with learned heads (interp score bundled:NAME):")
    for name in bundled.names("all"):
        run.say(f"  {name:<{width}}  {first_sentence(bundled.path(name))}")
    run.say(
        "\nBuilt by hand, so that the function of each head is known (interp score planted:NAME):"
    )
    for name, summary in planted.PLANTED.items():
        run.say(f"  {name:<{width}}  {summary}")
    run.say(
        f"\nRandom weights, {len(families.variant_names())} attention variants of the literature "
        "(interp score variant:NAME)"
        + (":" if variants else "; list: interp list models --variants")
    )
    wide = max(map(len, families.variant_names()))
    for name in families.variant_names() if variants else ():
        run.say(f"  {name:<{wide}}  {families.summary(name)}")
    run.say("\nOther models: a folder with config.json and safetensors, or a Hugging Face hub id.")
