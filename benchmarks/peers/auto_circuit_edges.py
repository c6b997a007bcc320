"""Edge scores of auto-circuit: EAP and integrated mask gradients."""

import torch
from auto_circuit.data import PromptDataLoader, PromptDataset
from auto_circuit.prune_algos.mask_gradient import mask_gradient_prune_scores
from auto_circuit.utils.graph_utils import patchable_model
from gpt2_lens import Found, given, lens_model, own_name

folder, pairs, out = given()
tensors = [torch.tensor(pairs[side]) for side in ("clean", "corrupted")]
answers = [[torch.tensor([x]) for x in pairs[side]] for side in ("answers", "wrong")]
loader = PromptDataLoader(
    PromptDataset(*tensors, *answers), seq_len=None, diverge_idx=0, batch_size=len(tensors[0])
)
model = patchable_model(
    lens_model(folder), factorized=True, slice_output="last_seq", separate_qkv=True
)


def listed(scores):
    return {
        (own_name(edge.src.name), own_name(edge.dest.name)): float(
            scores[edge.dest.module_name][edge.patch_idx]
        )
        for edge in model.edges
    }


found = Found(out)
for method, options, passes in (
    ("EAP", {"mask_val": 0.0}, 1),
    ("integrated mask gradients", {"integrated_grad_samples": 10}, 11),
):
    try:
        model.zero_grad()
        scores = mask_gradient_prune_scores(
            model,
            loader,
            set(),
            grad_function="logit",
            answer_function="avg_diff",
            clean_corrupt="corrupt",
            **options,
        )
        found.add(method, edges=listed(scores), forwards=1 + passes, backwards=passes)
    except Exception as error:
        found.fail(method, error)
