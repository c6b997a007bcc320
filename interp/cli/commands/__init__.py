"""The commands of the command line, one per file; importing them is cheap."""
