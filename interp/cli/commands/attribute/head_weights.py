"""Command `interp attribute head-weights`: heads whose attention predicts effects of removal."""

from __future__ import annotations

from interp.cli.making import command
from interp.cli.vocabulary import Spelling

head_weights = command(
    "interp.attribution.learned_weights:learn_head_weights",
    text="interp.report.printed.tables:top_text",
    omit=("share", "held_out", "clusters", "batch_size"),
    options={
        "how": Spelling(metavar="delete|mask|mean|hide|ID"),
        "top": Spelling(default=8),
    },
    out="file",
    help="Printed are the rank correlations of predicted and true changes on held-out texts, for "
    "the learned weights and for equal ones, against permuted heads; then the heads with the "
    "largest weights and the standard errors of these. The file of --out is for "
    "-m learned_attention:weights=FILE.",
    example="interp attribute head-weights gpt2 --file texts.txt -o weights.json",
)
