"""Command `interp completion`: script that completes commands, options and names in a shell."""

from __future__ import annotations

from typing import Literal

import click

from interp.cli.making import command
from interp.cli.wrapping import print_rows

# Otherwise bash would split bundled:stories into three words.
_WORDS = "COMP_WORDBREAKS=${COMP_WORDBREAKS//:/}\n"
GROUP = "Models and shell"


@command(
    over="nothing",
    arguments=("shell",),
    out=None,
    example="interp completion bash >> ~/.bashrc",
)
def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print the script that completes `interp` in a SHELL.

    \b
    bash:  interp completion bash >> ~/.bashrc
    zsh:   interp completion zsh >> ~/.zshrc
    fish:  interp completion fish > ~/.config/fish/completions/interp.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click has no completion for {shell}; use bash, zsh or fish")
    root = click.get_current_context().find_root().command
    script = kind(root, {}, "interp", "_INTERP_COMPLETE").source()
    print_rows((_WORDS if shell == "bash" else "") + script)
