"""`interp completion`: what a shell needs to complete commands, options and names."""

from __future__ import annotations

import click


@click.command(epilog="Example: interp completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes `interp` in a SHELL.

    \b
    bash:  interp completion bash >> ~/.bashrc
    zsh:   interp completion zsh >> ~/.zshrc
    fish:  interp completion fish > ~/.config/fish/completions/interp.fish
    """
    from click.shell_completion import get_completion_class

    from interp.cli import main

    made = get_completion_class(shell)
    if made is None:  # click knows all three
        raise AssertionError(shell)
    click.echo(made(main, {}, "interp", "_INTERP_COMPLETE").source(), nl=False)
