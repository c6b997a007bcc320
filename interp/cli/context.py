"""Keys of shared values in `click.Context.meta`, and the name of a command."""

import click

COMMAND = "interp.command"  # the arguments as given, for the provenance of a page
DEBUG = "interp.debug"
OVERWRITE = "interp.overwrite"  # True where --overwrite is given


def command_name(context: click.Context) -> str:
    """Return the name under which a command is known: a default command has that of its family."""
    parent = context.parent
    name = str(context.info_name)
    if parent is not None and getattr(parent.command, "default", "") == name:
        return str(parent.info_name)
    return name
