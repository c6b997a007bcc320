"""Special tokens of the bundled models, and their ids."""

BOS, PAD, UNKNOWN = 0, 1, 2
SPECIAL = ("<s>", "<pad>", "<unk>")
