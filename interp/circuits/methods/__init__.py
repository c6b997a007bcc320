"""Circuit-discovery methods, one function per file; see `interp.circuits.declaration`."""

from interp.core.public_names import lazy_analyses

lazy_analyses(__name__)
