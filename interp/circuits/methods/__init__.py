"""ROOM: ways to find a circuit, one function per file; see `interp.circuits.declaration`."""

from interp.core.room import furnish

furnish(__name__)
