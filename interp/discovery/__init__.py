"""ROOM: ways to find a circuit, one function per file; see `interp.circuit.declare`."""

from interp.room import furnish

furnish(__name__)
