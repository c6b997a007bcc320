"""Circuit-discovery methods, one function per file; see `interp.circuits.declaration`."""

from interp.core.lazy_analyses import lazy_analyses

lazy_analyses(__name__)
