"""Attribution methods, one per file.

A new method is a file in this folder with one function of the same name under `@attribution`, which
takes an `interp.attribution.Example` and returns `Scores`.
"""

from interp.core.public_names import lazy_analyses

lazy_analyses(__name__)
