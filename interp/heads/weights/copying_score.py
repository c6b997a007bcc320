"""Copying by OV circuits: eigenvalues, and the token's own logit."""

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


@weights(
    unit="balance of eigenvalues",
    low=-1.0,
    high=1.0,
    requires=("ov", "vocabulary"),
    task="repeats",
)
def ov_copying(model):
    """Raise the logit of the attended token: the balance of the OV circuit's eigenvalues.

    The sum of the eigenvalues of `W_E W_OV W_U` over the sum of their absolute values: 1 where
    every token raises itself, -1 where every token lowers itself, near 0 for random weights. Norms
    are folded, and the mean over the vocabulary is subtracted from W_U, since softmax ignores it.
    The score describes what a head would write if it attended to a token embedding, not that it
    attends there, nor how it uses the output of earlier heads. A head with tiny weights scores as
    high as one with large ones: see `ov_norm`. A head that writes only rounding errors into the
    vocabulary scores 0. Norms between layers of post-norm models (BART) are ignored. In an
    encoder-decoder the encoder's heads write no logits and get no score.

    Cost: One d_model x d_model matrix per way of reading the stream, then d_head eigenvalues per
    head.

    Not for: comparing sizes: small weights score like large ones. In deep models the input of a
    head is not an embedding, and the score describes a head that reads one.

    Reference: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
    """
    from interp.model.locate.layout import stream_read
    from interp.model.locate.weights import embeddings, predicting_sites

    vocabulary = embeddings(model)
    unembedding, back, scores = vocabulary.W_U, {}, {}
    for site in predicting_sites(model):
        stream = stream_read(site, "v")
        if stream not in back:  # d_model x d_model, once; never d_vocab x d_vocab
            back[stream] = unembedding @ vocabulary.W_E(stream)
        values = model.weights_of(site).OV.eigenvalues(back[stream])
        size = values.abs().sum(-1)
        scores[site] = values.real.sum(-1) / size.clamp_min(1e-30)
    return scores
