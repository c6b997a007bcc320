"""Command `interp importance gates`: learned gates on heads, kv groups, layers or MLPs."""

from __future__ import annotations

from interp.cli.making import GAME, command
from interp.cli.run import Run
from interp.cli.vocabulary import ABOVE_0, FROM_1, FROM_2, Spelling


def _write_curves(run: Run) -> None:
    """Write curves over training steps, if the sources are checkpoints of one run."""
    from interp.core.errors import OptionError
    from interp.heads.checkpoints.emergence import emergence_of_gates
    from interp.heads.checkpoints.steps import steps_of

    steps = steps_of(run.sources)
    if run.out is None or steps is None or not len(run.results) == len(run.sources) > 1:
        return
    try:
        gates = [result for _, [result] in run.results]
        curves = emergence_of_gates(dict(zip(steps, gates, strict=True)))
    except OptionError as error:
        run.voice.note(f"no curves over checkpoints: {error}")
        return
    for suffix in ("html", "json"):
        curves.save(run.out / f"gates_emergence.{suffix}")
    run.voice.note(
        f"{run.out}: gates_emergence.html, curves of gates over {len(steps)} checkpoints"
    )


gates = command(
    "interp.causal.gating.learn:learn_gates",
    over="models",
    loading=("remote", "tp_plan"),
    also=GAME,
    omit=("resume",),
    options={
        "steps": Spelling(type=FROM_1, metavar="N"),
        "rate": Spelling(type=ABOVE_0),
        "n_random": Spelling(type=FROM_2),
    },
    files=("gates.json", "gates.html"),
    after=_write_curves,
    help="With --out, gates.json can be given to `interp prune --gates`. With several checkpoints "
    "of one training run, gates_emergence.html holds the curve of every head's gate.",
    example="interp importance gates bundled:induction --method causal -o results",
)
