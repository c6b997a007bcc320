"""ROOM: circuit methods, one function per file; see `interp.circuits.declaration`."""

from interp.core.room import furnish

furnish(__name__)
