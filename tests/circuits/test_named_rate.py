"""Random models get no named head more often than the level allows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from circuits.speller import speller
from scipy.stats import binom
from transformers import LlamaConfig, LlamaForCausalLM

import interp
from interp.core.registry import METRICS
from interp.core.table import HeadTable
from interp.heads.score_rows import MetricScores, means_by_site, table_of
from interp.heads.scoring_without_prompts import _arrays
from interp.model.content import model_provenance

NAMES = ("name_mover", "context_copying", "memory_recall", "greater_than", "refusal_writer")
MODELS, LEVEL = 6, 0.05


def random_speaker(seed: int) -> interp.Model:
    tokenizer = speller()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        bos_token_id=0,
        eos_token_id=None,
        marker_token_id=7,
        refusal_token_ids=[9],
    )
    torch.manual_seed(40 + seed)
    return interp.load(LlamaForCausalLM(config).eval(), tokenizer=tokenizer, name="random")


@pytest.mark.slow
def test_random_models_get_no_named_head_more_often_than_the_level_allows() -> None:
    """Each model is held against the others, as draws of random weights, without asking whether
    it can do the tasks."""
    bounds = [METRICS.load(name).bind(pairs=12) for name in NAMES]
    every = []
    for seed in range(MODELS):
        model = random_speaker(seed)
        trials = [b.experiment(model, seed, lambda *x: None, notes=False) for b in bounds]
        every.append(
            [
                MetricScores(_arrays(t.values), t.clusters, t.null_kind, _arrays(t.null or {}))
                for t in trials
            ]
        )
    means = [[means_by_site(x.values) for x in mine] for mine in every]
    origin, claimed = model_provenance(model), 0
    for at, mine in enumerate(every):
        others = [m for k, m in enumerate(means) if k != at]
        table = HeadTable.concat(
            table_of(model, b, replace(x, draws=[o[k] for o in others]), origin, {})
            for k, (b, x) in enumerate(zip(bounds, mine, strict=True))
        )
        frame = table.to_pandas()
        assert len(frame) == len(NAMES) * 8
        assert frame["p"].notna().all()
        claimed += any(x.roles for x in interp.roles(table).assigned)
    assert claimed <= binom.ppf(0.99, MODELS, LEVEL)
