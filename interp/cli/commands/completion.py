"""`interp completion`: what a shell needs to complete commands, options and names."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

_ATTRIBUTE = ("attribute", "faithfulness")  # whose methods those of `interp methods` are
# Or bash would take bundled:induction for three words.
_WORDS = "COMP_WORDBREAKS=${COMP_WORDBREAKS//:/}\n"


@click.command(epilog="Example: interp completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes `interp` in a SHELL.

    \b
    bash:  interp completion bash >> ~/.bashrc
    zsh:   interp completion zsh >> ~/.zshrc
    fish:  interp completion fish > ~/.config/fish/completions/interp.fish
    """
    from interp.cli.main import main

    script = SHELLS[shell](main, {}, "interp", "_INTERP_COMPLETE").source()
    click.echo((_WORDS if shell == "bash" else "") + script, nl=False)


class _Named(ShellComplete):
    """Also completes what arguments and options are the names of."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """What fits; raises nothing."""
        if isinstance(self.cli, click.Group):
            complete_names(self.cli)
        return super().get_completions(args, incomplete)


class _Bash(_Named, BashComplete):
    pass


class _Zsh(_Named, ZshComplete):
    pass


class _Fish(_Named, FishComplete):
    pass


SHELLS = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}
for _name, _shell in SHELLS.items():
    add_completion_class(_shell, _name)


def complete_names(main: click.Group) -> None:
    """Let every argument and option that takes models, metrics or methods complete their names."""
    for command in main.commands.values():
        for parameter in command.params:
            found = _names_of(str(command.name), str(parameter.name))
            if found is not None:
                parameter.shell_complete = found  # type: ignore[method-assign]


def _names_of(command: str, parameter: str) -> Callable | None:
    if parameter in ("source", "sources"):
        return _models
    if parameter == "metrics" or (command, parameter) == ("metrics", "name"):
        return lambda ctx, incomplete: _listed(_metrics(), incomplete)
    of_attribution = parameter == "methods" and command in _ATTRIBUTE
    if of_attribution or (command, parameter) == ("methods", "name"):
        return lambda ctx, incomplete: _listed(_methods(), incomplete)
    return None


def _models(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Models that come with the package; else whatever the shell makes of it, a path."""
    from interp import bundled, planted

    names = [f"bundled:{n}" for n in bundled.names()] + [f"planted:{n}" for n in planted.PLANTED]
    found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


def _listed(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Of names with commas between, the last one."""
    before, comma, last = incomplete.rpartition(",")
    found = [CompletionItem(before + comma + name) for name in names if name.startswith(last)]
    return found or [CompletionItem(incomplete, type="file")]  # a file that declares one


def _metrics() -> list[str]:
    from interp.core.registry import ROOMS, catalogue

    return [*catalogue(), *ROOMS, "all"]


def _methods() -> list[str]:
    from interp.core.registry import methods

    return list(methods())
