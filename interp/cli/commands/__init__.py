"""Commands of `interp`, one per file: a click command under the file's name.

The folder is the registry: each file defines a command, with its line in `interp --help`, its help
and its completion. Files are imported only when their command is used.
"""
