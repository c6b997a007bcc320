"""Heads with a name in the literature on circuits, one experiment per file.

Each runs its own task. A model that cannot do the task gets no scores, and the reason. To add one,
add a file here with one function of the same name, decorated with `@experiment`.
"""

from interp.core.room import furnish

furnish(__name__)
