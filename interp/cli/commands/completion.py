"""Command `interp completion`: script that completes commands, options and names in a shell."""

from __future__ import annotations

import click

# Otherwise bash would split bundled:induction into three words.
_WORDS = "COMP_WORDBREAKS=${COMP_WORDBREAKS//:/}\n"

GROUP = "Models and shell"


@click.command(epilog="Example: interp completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
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
    script = kind(context.find_root().command, {}, "interp", "_INTERP_COMPLETE").source()
    click.echo((_WORDS if shell == "bash" else "") + script, nl=False)
