"""Entry point of `python -m interp`, the same as the command `interp`."""

from interp.cli.main import main

main(prog_name="interp")
