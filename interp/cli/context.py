"""Keys of shared values in `click.Context.meta`."""

COMMAND = "interp.command"  # the arguments as given, for the provenance of a page
DEBUG = "interp.debug"
OVERWRITE = "interp.overwrite"  # True where --overwrite is given
