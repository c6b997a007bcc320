"""Heads that copy, by the logits that they raise for the attended token."""

from interp.core.errors import OptionError
from interp.heads.declaration import weights

ROUNDING = 1e-6  # of the product of the sizes of the factors


@weights(
    unit="share of raised logit",
    low=-1.0,
    high=1.0,
    requires=("ov", "vocabulary"),
    task="repeats",
)
def copying_score(model, *, tokens: int = 25, samples: int = 8, draw: int = 0):
    """Raise the logit of the attended token above those of other random tokens.

    Each of `tokens` random token ids is attended to in turn. The head's logits for all of them
    (`W_E W_OV W_U`) are centred and negative ones are set to zero; the score is the share of the
    rest that falls on the attended token, averaged over tokens and samples, and rescaled from [0,
    1] to [-1, 1]. So 1 raises that token alone, -1 never raises it, and random weights score about
    `2 / tokens - 1`. The paper runs the model on the random tokens and uses the head's true output;
    here the head attends to one token at a time with the embedding as its input, so the score needs
    no prompt and ignores earlier layers.

    Cost: Products of factors for a few hundred tokens.

    Not for: heads of late layers, whose input is far from an embedding. It does not show where the
    head attends.

    Options:
        tokens: number of competing ids; the whole vocabulary if it is smaller.
        samples: number of draws.
        draw: seed of the draws.

    Reference: Olsson et al. 2022, "In-context Learning and Induction Heads".
    """
    import torch

    from interp.model.locate.layout import stream_read
    from interp.model.locate.weights import embeddings, predicting_sites

    if tokens < 2 or samples < 1:
        raise OptionError(
            f"copying_score: tokens={tokens} must be at least 2 and samples={samples} at least 1"
        )
    vocabulary, scores = embeddings(model), {}
    unembedding, entering = vocabulary.W_U, {}
    n = min(tokens, unembedding.shape[1])
    generator = torch.Generator().manual_seed(draw)
    draws = [torch.randperm(unembedding.shape[1], generator=generator)[:n] for _ in range(samples)]
    for site in predicting_sites(model):
        stream = stream_read(site, "v")
        if stream not in entering:
            entering[stream] = vocabulary.W_E(stream)
        ov, shares = model.weights_of(site).OV, []
        for ids in draws:
            read, written = entering[stream][ids], unembedding[:, ids]
            logits = (read @ ov.left) @ (ov.right @ written)
            raised = (logits - logits.mean(-1, keepdim=True)).clamp_min(0).double()
            # a token that the head does not read raises none: what is left is rounding
            size = read.norm(dim=-1).max() * written.norm(dim=0).max()
            size = size * ov.left.flatten(-2).norm(dim=-1) * ov.right.flatten(-2).norm(dim=-1)
            least = ROUNDING * size.double()[..., None, None]
            raised = raised * (raised.amax(-1, keepdim=True) > least)
            diagonal = raised.diagonal(dim1=-2, dim2=-1)
            shares.append((diagonal / raised.sum(-1).clamp_min(1e-30)).mean(-1))
        scores[site] = 2 * torch.stack(shares).mean(0) - 1
    return scores
