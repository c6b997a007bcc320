"""Heads that copy, by the eigenvalues of the full OV circuit."""

from interp.heads.declaration import weights


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
