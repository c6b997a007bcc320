"""Keys of what the commands share in `click.Context.meta`."""

COMMAND = "interp.command"  # the arguments as given, for the page that says how it was made
DEBUG = "interp.debug"
