"""Scripts that trained the models of `interp/bundled` and wrote the text of `data/`.

They run from the top of a checkout (`python -m training.train --help`) and are not installed.
"""
