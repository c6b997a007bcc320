"""A view with a model behind it: type a prompt, see every head, zoom, ablate.

    session     the model and the latest prompt                  session.py, turns.py
    maps        tiles of long prompts from queries and keys      kept.py
    ablation    the logits with and without some heads           ablated.py
    server      `interp explore`: page, API, address             server.py, app.py, page.py
    notebook    `Explorer`, the same view in a notebook          notebook.py, widget.py
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
