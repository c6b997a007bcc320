"""`python -m interp` is the command `interp`."""

from interp.cli.main import main

main(prog_name="interp")
