"""Attribution methods, one per file.

A new method is a file in this folder with one function of the same name under `@attribution`, which
takes an `interp.attribution.Example` and returns `Scores`.
"""

from interp.core.room import furnish

furnish(__name__)
