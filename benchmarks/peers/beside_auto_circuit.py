"""The row of edges of `benchmarks/beside.py` by auto-circuit."""

import torch
from auto_circuit.data import PromptDataLoader, PromptDataset
from auto_circuit.prune_algos.mask_gradient import mask_gradient_prune_scores
from auto_circuit.utils.graph_utils import patchable_model
from beside_timing import measure
from gpt2_lens import lens_model, own_name


def load(folder):
    return patchable_model(
        lens_model(folder), factorized=True, slice_output="last_seq", separate_qkv=True
    )


def edges(model, inputs):
    tensors = [torch.tensor(inputs[side]) for side in ("clean", "corrupted")]
    answers = [[torch.tensor([x]) for x in inputs[side]] for side in ("answers", "wrong")]
    loader = PromptDataLoader(
        PromptDataset(*tensors, *answers), seq_len=None, diverge_idx=0, batch_size=len(tensors[0])
    )
    scores = mask_gradient_prune_scores(
        model,
        loader,
        set(),
        grad_function="logit",
        answer_function="avg_diff",
        clean_corrupt="corrupt",
        mask_val=0.0,
    )
    return {
        f"{own_name(edge.src.name)}>{own_name(edge.dest.name)}": float(
            scores[edge.dest.module_name][edge.patch_idx]
        )
        for edge in model.edges
    }


measure(load, {"edges": edges})
