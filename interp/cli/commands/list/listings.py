"""Commands `interp list`: metrics, attribution methods and models, without importing them."""

from __future__ import annotations

from interp.cli.making import command
from interp.cli.name_types import ATTRIBUTION_NAME, METRIC_NAME, MODEL_NAME, note_left_out
from interp.cli.run import Run
from interp.cli.vocabulary import Spelling
from interp.core.literature import paper_text
from interp.core.registry import ATTRIBUTION_METHODS, METRICS
from interp.core.shell_line import shell_line


@command(
    over="nothing",
    arguments=("name",),
    out=None,
    options={"name": Spelling(type=ATTRIBUTION_NAME)},
    example="interp list methods occlusion",
)
def methods(run: Run, name: str | None = None, *, paper: str | None = None) -> None:
    """List the attribution methods, or explain one.

    They attribute a model output to the tokens of the input: see `interp attribute`. NAME is a
    method, or a user-supplied .py file that declares one.

    Args:
        name: the method.
        paper: papers with this text in their title: the call, the command and the test of each.
    """
    from interp.report.printed.listing import method_listing, method_text

    if paper is not None:
        run.say(paper_text(paper, name))
    elif name is None:
        run.say(method_listing())
        note_left_out(ATTRIBUTION_METHODS)
    else:
        run.say(method_text(ATTRIBUTION_METHODS.explained(name)))


@command(
    over="nothing",
    arguments=("name",),
    out=None,
    options={"name": Spelling(type=METRIC_NAME)},
    example="interp list metrics induction",
)
def metrics(run: Run, name: str | None = None, *, paper: str | None = None) -> None:
    """List the metrics, or explain one.

    NAME is a metric, or a user-supplied .py file that declares one.

    Args:
        name: the metric.
        paper: papers with this text in their title: the call, the command and the test of each.
    """
    from interp.report.printed.listing import metric_listing, metric_text

    if paper is not None:
        run.say(paper_text(paper, name))
    elif name is None:
        run.say(metric_listing())
        note_left_out(METRICS)
    else:
        run.say(metric_text(METRICS.explained(name)))


@command(
    over="nothing",
    arguments=("name",),
    out=None,
    options={"name": Spelling(type=MODEL_NAME)},
    example="interp list models trained:names",
)
def models(run: Run, name: str | None = None) -> None:
    """List the models that come with the package, or print the card of one.

    NAME is a model of the list with its kind, such as trained:names.

    Args:
        name: the model.
    """
    from interp import bundled, planted
    from interp.report.printed.listing import first_sentence
    from interp.report.printed.model_card import model_card

    if name is not None:
        run.say(model_card(name))
        return
    known = {kind: planted.known_models(kind) for kind in planted.KINDS}
    width = max(map(len, [*bundled.names("all"), *(n for names in known.values() for n in names)]))
    run.say("Trained from scratch, with learned heads (interp score bundled:NAME):")
    for each in bundled.names("all"):
        run.say(f"  {each:<{width}}  {first_sentence(bundled.path(each))}")
    for kind, names in known.items():
        run.say(f"\n{_ABOUT[kind]} ({shell_line('score', f'{kind}:NAME')}):")
        for each, summary in names.items():
            run.say(f"  {each:<{width}}  {summary}")
        if kind == "compiled":
            run.say(f"  {'NAME+NAME':<{width}}  any programs with the same kind of attention")
    run.say("\nOther models: a folder with config.json and safetensors, or a Hugging Face hub id.")
    run.say("`interp list models KIND:NAME` prints what is known of a model.")


_ABOUT = {
    "planted": "Built by hand, so that the function of each head is known",
    "compiled": "Compiled from programs, whose circuit is known exactly",
    "trained": "Trained to hold a known algorithm among heads that have no effect",
}
