"""Command `interp texts graph`: the attention of one prompt as a graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from interp.cli.between import aligned_columns, printed_rows, voice_of
from interp.cli.loading import Loading, import_first, loading_options
from interp.cli.shared_options import model_argument, text_option
from interp.cli.value_types import OUT_FOLDER, PromptFile
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.heads.graphs import AttentionGraph, GraphInput
    from interp.model.model import Model


@click.command(epilog="Example: interp texts graph MODEL --text 'Tom met Lily. Lily met Ben.'")
@model_argument
@text_option
@click.option("--file", type=PromptFile(), metavar="FILE",
              help="Graph as the prompt: a file with two names per line. Attention between "
                   "mentions of nodes is compared with the edges.")  # fmt: skip
@click.option("--heads", metavar="HEADS",
              help="Heads to average, such as L1H0,L1H1; all by default.")  # fmt: skip
@click.option("--over", default="mean", show_default=True, type=click.Choice(["mean", "product"]),
              help="Combine layers by the mean of their attention, or by their "
                   "product.")  # fmt: skip
@click.option("--residual", default=0.0, show_default=True,
              type=click.FloatRange(0, 1, max_open=True),
              help="Share of a layer that bypasses its attention, for the product.")  # fmt: skip
@click.option("--threshold", default="disparity:0.05", show_default=True, metavar="RULE",
              help="Rule for what is an edge: value:0.1, count:50, row:2 or "
                   "disparity:0.05.")  # fmt: skip
@click.option("--random", "draws", default=100, show_default=True, type=click.IntRange(2),
              help="Number of random graphs of each null.")  # fmt: skip
@click.option("--top", default=8, show_default=True, type=click.IntRange(0), metavar="K",
              help="Number of edges and nodes to print.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of random graphs and prompt.")
@click.option("--json", "form", flag_value="json", help="Print only the edges, as JSON.")
@click.option("--csv", "form", flag_value="csv", help="Print only the edges, as CSV.")
@click.option("-o", "--out", type=OUT_FOLDER, metavar="DIR",
              help="Folder for graph.json, .csv, .html and .graphml.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def graph(
    source: str, text: str | None, file: Path | None, heads: str | None, over: str,
    residual: float, threshold: str, draws: int, top: int, seed: int, form: str | None,
    out: Path | None, quiet: bool, loading: Loading, imports: tuple[str, ...],
) -> None:  # fmt: skip
    """Make a graph of the attention of MODEL between the tokens of a text, and measure it.

    An edge leads from the attending token to the attended one. Motifs and communities are compared
    with random graphs of the same degrees. Without a text, random tokens repeated twice are used.
    """
    if text is not None and file is not None:
        raise OptionError("give --text or --file, not both")
    if file is not None and (heads or over != "mean" or residual):
        raise OptionError("--file averages all heads; leave out --heads, --over and --residual")
    import_first(imports)
    voice = voice_of(quiet)
    with voice.bars(source) as tell:
        model = loading.checked(source, source, tell)
    from interp.core.prompts import repeats
    from interp.heads.graphs import attention_graph as made_graph
    from interp.heads.graphs import read_graph

    given = None if file is None else read_graph(file)
    if given is not None:
        found = _of_edges(model, given, threshold)
    else:
        if text is None:
            voice.note("no text given: random tokens repeated twice")
        prompt = repeats(model, n=1, seed=seed, longest=24) if text is None else text
        chosen = None if heads is None else [h.strip() for h in heads.split(",")]
        found = made_graph(
            model, prompt, heads=chosen, over=over, residual=residual, threshold=threshold
        )
    if form is not None:
        printed_rows(found, form)
    else:
        _told(found, top, draws, seed)
        if given is not None:
            _compared(found, given, draws, seed)
    if out is not None:
        from interp.cli.written import model_folder

        folder = model_folder(out, model.name)
        for end in ("json", "csv", "html", "graphml"):
            found.save(folder / f"graph.{end}")
        voice.note(f"{folder}: graph.json, graph.csv, graph.html, graph.graphml")


def _of_edges(model: Model, given: GraphInput, threshold: str) -> AttentionGraph:
    import numpy as np

    from interp.core.prompts import Prompts
    from interp.heads.graphs import graph_of, node_attention
    from interp.model.content import result_provenance

    matrix, chain = node_attention(model, given)
    about = result_provenance(model, "interp texts graph", Prompts((chain.ids,), "edges"))
    n = len(given.nodes)
    return graph_of(matrix.mean(0), given.nodes, threshold=threshold, seen=np.ones((n, n)),
                    kind="attention between mentions", provenance=about)  # fmt: skip


def _told(found: AttentionGraph, top: int, draws: int, seed: int) -> None:
    parts = found.components()
    click.echo(f"{found!r}")
    if len(parts) > 1:
        click.echo(
            f"  not connected: the largest component has {len(parts[0])} nodes; paths are counted "
            "where they exist"
        )
    rows = [("edge", "weight", "even attention")]
    for r in found.top(top).to_pandas().to_dict("records"):
        edge = f"{r['source']} {r['source_name']!r} -> {r['target']} {r['target_name']!r}"
        rows.append((edge, f"{r['score']:.3f}", f"{r['null']:.3f}"))
    click.echo(aligned_columns(rows))
    frame = found.centrality().sort_values("pagerank", ascending=False).head(top)
    rows = [("node", "received", "given", "pagerank", "betweenness", "closeness")]
    for r in frame.to_dict("records"):
        rows.append((
            f"{r['node']} {r['name']!r}", f"{r['in_strength']:.3f}", f"{r['out_strength']:.3f}",
            f"{r['pagerank']:.3f}", f"{r['betweenness']:.3f}", f"{r['closeness']:.3f}",
        ))  # fmt: skip
    click.echo(f"\n{aligned_columns(rows)}")
    if not len(found.edges):
        return
    labels, told = found.communities(draws=min(draws, 20), seed=seed)
    click.echo(
        f"\n{labels.max() + 1} communities, modularity {told['modularity']:.3f}; random graphs "
        f"{told['null']:.3f} ± {told['null_sd']:.3f} (p {told['p']:.3f})"
    )
    table = found.motifs(draws=draws, seed=seed)
    rows = [("motif", "count", "random graphs", "p")]
    for r in table.to_dict("records"):
        rows.append((r["motif"], str(r["count"]), f"{r['null']:.1f} ± {r['sd']:.1f}",
                     f"{r['p']:.3f}"))  # fmt: skip
    if len(rows) > 1:
        click.echo(aligned_columns(rows))


def _compared(found: AttentionGraph, given: GraphInput, draws: int, seed: int) -> None:
    told = found.against(given.adjacency, draws=draws, seed=seed)
    click.echo(
        f"\nAgainst the edges of the graph: AUROC {told['auroc']:.3f} (nodes exchanged "
        f"{told['auroc_null']:.3f}, p {told['auroc_p']:.3f}), precision {told['precision']:.3f} "
        f"({told['precision_null']:.3f})"
    )
