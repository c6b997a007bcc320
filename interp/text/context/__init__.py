"""Context attribution: the sentences of a prompt's documents that an answer rests on.

    from interp.text import chains, context

    document = chains.Chain.of_text(model, text, question="Q: Who came? A:", answer=" Tom")
    judged = context.judge_sources(model, chains.linked_chains(model, chains=12))
    context.answer_sources(model, document, judged=judged).top(3)

The command is `interp texts sources`. Importing this package does not load torch.
"""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
