"""Attribution methods, one idea per file.

A new method is a function under `@attribution`, in a file of this folder, which takes an
`interp.attribution.Example` and returns `Scores`.
"""

from interp.core.public_names import lazy_analyses

lazy_analyses(__name__)
