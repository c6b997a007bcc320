"""Command `interp circuit graph`: attribution graph of one prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from interp.cli.loading import Loading, import_first, loading_options, source_labels
from interp.cli.progress import Voice
from interp.cli.shared_options import model_argument, text_option
from interp.cli.traced_prompts import aligned_table, traced_prompts
from interp.cli.value_types import OUT_FOLDER

SHARE = click.FloatRange(0, 1, min_open=True)


@click.command(
    epilog="Example: interp circuit graph MODEL --text 'Once upon a time there was a' -o results"
)
@model_argument
@text_option
@click.option("-t", "--target", "targets", multiple=True, metavar="TOKEN",
              help="Token whose logit is a node; repeatable. By default the most probable tokens "
                   "up to 95 % of the probability, at most 10.")  # fmt: skip
@click.option("--nodes", default=0.8, show_default=True, type=SHARE, metavar="SHARE",
              help="Keep the nodes that have this share of the influence on the "
                   "logits.")  # fmt: skip
@click.option("--edges", default=0.98, show_default=True, type=SHARE, metavar="SHARE",
              help="Keep the edges that have this share of the influence.")  # fmt: skip
@click.option("--mlp", default="gradient", show_default=True,
              type=click.Choice(["gradient", "identity"]),
              help="Linearise MLPs by the gradient, or by the ratio of each activation to its "
                   "input.")  # fmt: skip
@click.option("--per", "by", default="head", show_default=True,
              type=click.Choice(["head", "layer", "token", "edge"]),
              help="Sum edges between these groups; edge prints single edges.")  # fmt: skip
@click.option("--top", default=12, show_default=True, type=click.IntRange(1),
              help="Number of edges to print.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of the random prompt.")
@click.option("-o", "--out", type=OUT_FOLDER, metavar="DIR",
              help="Folder for graph.json (for circuit-tracer's front end), .graphml, .svg, .html, "
                   "and edges.csv.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def graph(
    source: str, text: str | None, targets: tuple[str, ...], nodes: float, edges: float, mlp: Any,
    by: str, top: int, seed: int, out: Path | None, quiet: bool, loading: Loading,
    imports: tuple[str, ...],
) -> None:  # fmt: skip
    """Compute the direct effects between tokens, heads, MLPs and logits of MODEL on a text.

    Attention patterns, norms and the derivatives of MLPs are held at their values in the run.
    """
    import_first(imports)
    voice = Voice.of_command(quiet=quiet)
    from interp.circuits import attribution_graph

    [(path, name)] = source_labels([source]).items()
    model = loading.load(path, name)
    prompt = traced_prompts(model, text, None, 1, seed, voice)
    found = attribution_graph(
        model, prompt, targets=[int(t) if t.isdecimal() else t for t in targets],
        node_share=nodes, edge_share=edges, mlp=mlp,
    )  # fmt: skip
    click.echo(repr(found))
    for x in found.nodes:
        if x.kind == "logit":
            click.echo(f"  {found.described(x)}: {x.activation:+.3f} above the mean logit")
    frame = found.to_pandas() if by == "edge" else found.grouped(by)
    table = [("source", "target", "effect", "influence")]
    for r in frame.head(top).to_dict("records"):
        table.append((r["source"], r["target"], f"{r['score']:+.3f}", f"{r['influence']:.3f}"))
    click.echo(aligned_table(table))
    if out is None:
        return
    from interp.cli.written import model_folder

    folder = model_folder(out, model.name)
    found.to_circuit_tracer(folder / "graph.json")
    for file in ("graph.graphml", "graph.svg", "graph.html", "edges.csv"):
        found.save(folder / file)
    voice.note(f"{folder}: graph.json, graph.graphml, graph.svg, graph.html, edges.csv")
