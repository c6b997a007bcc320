"""ROOM: ways to find a circuit, one function per file."""
