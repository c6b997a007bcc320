"""Commands run in this process, as for the tests of the command line."""

from cli.conftest import errors, run

__all__ = ["errors", "run"]
