"""interp: declare a head behaviour once, and score it on any model, with its error and baseline.

    source            a hub id, a folder, a Hugging Face model object, a bundled or planted model
      |
      v
    1 Model           the only thing that knows architectures; standard names, run, capture, edit
      |
      v
    2 capture         what one forward pass leaves behind: tensors, or reductions of the pattern
      |
      v
    3 analysis        one declared function per file: heads/ weights/ ...
      |
      v
    4 HeadTable       model, stack, layer, head, metric, score, sem, n, null + provenance
      |
      v
    5 plot 6 report 7 store        figures, one self-contained page, Parquet

Arrows only run down this list. Importing `interp` imports neither torch nor transformers.
"""

import lazy_loader

from interp.core import moved

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

moved.explain()
