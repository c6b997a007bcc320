"""Captions of the pictures of the pages of methods."""

_BY_ROW = "Each row is divided by its largest absolute score."
CAPTIONS = {
    "detectors": (
        "`planted:zoo`, a model with one head of each role among random heads. Rows are metrics, "
        "columns are heads. "
        f"{_BY_ROW}"
    ),
    "weights": (f"The same model, scored from its weights alone. {_BY_ROW}"),
    "geometry": (
        f"The same model. {_BY_ROW} Metrics that fewer than half of these heads have a value of "
        "are left out."
    ),
    "categories": (
        "`bundled:induction`, which knows no words: its heads attend to bytes that occur again, of "
        "which some categories have more. A score is compared with the labels of other texts. "
        f"{_BY_ROW}"
    ),
    "cache": (f"`planted:zoo`. {_BY_ROW}"),
    "cross": (
        "`bundled:reorder` on sentence pairs: its four cross-attention heads. The heads of layer 1 "
        f"find the translated word wherever it is, so their order is mixed. {_BY_ROW}"
    ),
    "experiments": (
        "`planted:zoo`. Metrics of outliers and sinks are high for several random heads too: "
        "compare with the null. "
        f"{_BY_ROW}"
    ),
    "roles": (
        "The same model: L3H3 lowers what L1H1 copies. Metrics that need text have no scores on a "
        "model without a tokenizer. "
        f"{_BY_ROW}"
    ),
    "attribution_methods": (
        "`bundled:deceive` answers by the name and hides it from its attention. Methods that read"
        " the patterns alone (raw attention, rollout, flow) miss the name. Absolute scores; each "
        "row is divided by its largest score."
    ),
    "token_importance": (
        "`bundled:deceive`, as for attribution methods, with the change of the answer when each "
        "word is hidden from the attention of all others in the last row. Published rules that "
        "read keys, norms or attention do not know which word decides. "
        f"{_BY_ROW}"
    ),
    "importance": (
        "`planted:backup`: L2H0 copies only if L1H0 is ablated, so ablating one head at a time "
        "finds neither. Change of the loss in nats per token."
    ),
    "importance_more": (
        "`bundled:induction`: the loss as heads are ablated one after another, least important "
        "first, on held-out prompts, with random orders for comparison."
    ),
    "replacement": (
        "`planted:induction`: the loss on repeated tokens that each kind adds when it replaces "
        "the output of the induction head (`resample` needs prompts of one length)."
    ),
    "circuit_methods": (
        "`planted:bystander`: L0H3 and L1H0 do the task; L1H2 has the same attention as L1H0, but"
        " its output is never read; `codes` lists it nevertheless. "
        f"{_BY_ROW}"
    ),
    "circuits": (
        "`bundled:induction`: faithfulness of the first heads of a circuit, with all others "
        "ablated, and of heads in random order."
    ),
    "syntax": (
        "`bundled:induction` on the project's treebank: the best head for each relation beside "
        "the best fixed distance. A model of random tokens has no syntax to find."
    ),
    "safety": (
        "`planted:refusal`: one head causes the refusal. Its ablation lowers refusal and leaves "
        "the loss on harmless prompts as it is."
    ),
    "needle": (
        "`bundled:induction`: the share of the needle that each head copies, with the chance "
        "level as a line."
    ),
    "outliers": (
        "`planted:sink` on tokens without repeats: the attention that each head gives to its "
        "strongest sink. L0H1 and L1H1 are the planted sinks; L1H2, an induction head, rests on "
        "the first token where it finds no earlier copy."
    ),
    "lens": (
        "`bundled:induction` on a sequence that repeats: the logit of the most likely token after"
        " each layer. The second copy is predicted in the last layer only."
    ),
    "alignment": (
        "`bundled:reorder`: attention of cross.L1H0 in the rows that emit the words of one "
        "translation, with the gold links as circles. The first source word, which sets the order, "
        "has no translation."
    ),
    "vision": (
        "`bundled:shapes-spurious`, a vision transformer in which L2H1 was planted to read a "
        "spurious cue: share of the votes of images that it makes wrong, minus that of right ones."
    ),
    "vision_language": (
        "A planted LLaVA model: share of each head's attention to the picture that is on its "
        "sinks. L2H2 was planted to attend to a sink."
    ),
    "chains": (
        "`planted:induction` on a chain with planted dependencies: mean attention from each "
        f"sentence to each earlier one. {_BY_ROW}"
    ),
    "context": (
        "`planted:induction` on documents with known sources: how often each way finds them first, "
        "on documents that chose no heads."
    ),
    "graphs": (
        "`planted:induction` on twelve tokens and their repetition: the strongest edge of each "
        "token in the attention of L1H0, which leads to what followed its first copy."
    ),
    "probes": (
        "`planted:induction`: a probe of the last token tells which of two tokens followed its "
        "earlier copy. Rise of the held-out loss when the features of a head are set to their "
        "mean, with its 95 % interval over documents. L1H0 is the planted induction head."
    ),
    "segments": (
        "`image_readers`, a planted model: L1H2 attends from text to the images, L1H0 to the first "
        "token, L0H1 among images; all others attend evenly, and score the share of image tokens. "
        f"{_BY_ROW}"
    ),
}
