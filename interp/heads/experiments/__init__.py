"""Kinds of head that show in an experiment: prompts made for them, or a change of the model.

A new one is a file here with one function of its name under `@experiment`.
"""

from interp.core.room import furnish

furnish(__name__)
