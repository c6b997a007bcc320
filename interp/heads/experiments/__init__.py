"""Metrics measured in experiments: specially made prompts, or interventions on the model.

To add one, add a file here with one function of the same name, decorated with `@experiment`.
"""

from interp.core.public_names import lazy_analyses

lazy_analyses(__name__)
