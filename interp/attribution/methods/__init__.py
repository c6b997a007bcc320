"""Where the information came from: one attribution method per file.

A new method is a file here with one function of its name under `@attribution`; it gets an
`interp.attribution.Example` and returns `Scores`.
"""

from interp.core.room import furnish

furnish(__name__)
