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
bundled, model, lens, causal, attribution, heads, cache, text, alignment, vision, safety, probes,
syntax, dictionaries, policies, circuits, profiles, testing, report, cli. The file that makes a
result states what it looks like (`interp.core.presenter`). Importing `interp` imports neither torch
nor transformers.
"""

from typing import Any

from interp.core.annotated import READERS
from interp.core.public_names import attach

_public, __dir__, __all__ = attach(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Return a public name, or `__version__` as pyproject.toml or the metadata state it."""
    if name == "__version__":
        from interp.core.installed import version

        return version()
    return _public(name)


def _named_model(value: Any) -> Any:
    """Return the model that an argument of a public function denotes; a named one is loaded."""
    from interp.model.model_argument import one_model

    return one_model(value)


READERS["interp.model.model:Model"] = READERS["interp.core.protocols:TokenModel"] = _named_model
