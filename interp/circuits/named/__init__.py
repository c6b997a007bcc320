"""Heads with a name in the literature on circuits.

Each runs its own task. A model that cannot do the task gets no scores, and the reason. To add one,
add a function decorated with `@experiment` to the file of its kind, or a new file.
"""

from interp.core.public_names import lazy_analyses

lazy_analyses(__name__)
