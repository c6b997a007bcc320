"""Published measures of the importance of tokens, one idea per file.

They are attribution methods that explain no target: a rule of a paper on caches, quantisation,
pruning or pooling says which tokens matter. `interp attribute tokens` shows them side by side with
the effect of hiding each token.
"""

from interp.core.public_names import lazy_analyses

lazy_analyses(__name__)
