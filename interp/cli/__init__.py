"""The command line: `main` finds one command per file in `commands/`."""
