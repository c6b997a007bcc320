"""Command `interp prune verify`: statements of a pruned checkpoint, computed again."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(
    "verify-certificate", epilog="Example: interp prune verify smaller --original models/mine"
)
@click.argument(
    "folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False)
)
@click.option("--original", metavar="MODEL", help="The original model; by default it is loaded "
              "from where it was.")  # fmt: skip
@click.option("--trust-remote-code", is_flag=True,
              help="Run the modelling file of a compact checkpoint, and tasks that are "
              "programs.")  # fmt: skip
def verify(folder: Path, original: str | None, trust_remote_code: bool) -> None:
    """Compute the certificate of a checkpoint of `interp prune --save` again.

    Files, weights, sizes, outputs, and the task before, after and under random removals are
    compared; what differs is listed, and what cannot be computed again is named. The exit code is 1
    if something differs, or if no task could be computed again.
    """
    from interp.causal.checkpoint.verify import verify_certificate as verified

    found = verified(folder, original=original, trust_remote_code=trust_remote_code)
    click.echo(found)
    if not found.holds:
        click.get_current_context().exit(1)
