"""Rows of `benchmarks/beside.py` by inseq."""

import inseq
from beside_timing import measure


def integrated(model, inputs):
    text = " ".join(f"w{x}" for x in inputs["text"][0])
    found = model.attribute(
        text,
        f"{text} w{inputs['answers'][0]}",
        attributed_fn="logit",
        n_steps=20,
        internal_batch_size=8,
        show_progress=False,
    )
    scores = found[0].target_attributions
    return scores[: len(inputs["text"][0])].sum(-1).flatten().tolist()


measure(
    lambda folder: inseq.load_model(folder, "integrated_gradients"),
    {"integrated gradients": integrated},
)
