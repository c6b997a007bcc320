"""interp: declare a head behaviour once and score it on any model, with standard errors and nulls.

    source            a hub id, a folder, a Hugging Face model object, a TransformerLens bridge,
      |               an nnsight model, a bundled or planted model
      v
    Model             the only object that knows architectures: standard names, run, capture, edit
      |
      v
    engine            runs prompts once and asks every attention call for the reductions that the
      |               analyses named; patterns are stored or streamed, with the same numbers
      v
    analysis          declared functions by family: detectors and statistics name a reduction,
      |               weights read the model, experiments and methods run it on prompts of their own
      |
      v
    Result            rows with units, errors, null and provenance; one protocol for every folder
      |
      v
    pages, store      figures, self-contained pages, Parquet; the command line prints and writes

Imports run one way: a folder imports only from folders before it in the list core, draw, planted,
bundled, model, lens, causal, attribution, heads, safety, probes, syntax, dictionaries, circuits,
report, cli; only `interp.core.display.drawn` asks a later one, for the figure or page of a result.
Importing `interp` imports neither torch nor transformers.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
