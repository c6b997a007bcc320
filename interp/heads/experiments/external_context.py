"""Heads that attend to context whose last-layer states are like that of the answering token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.heads.declaration import experiment
from interp.heads.needle.instance import NeedleOptions

if TYPE_CHECKING:
    from interp.heads.needle.instance import Instance
    from interp.model.model import Model


@experiment(
    unit="cosine",
    low=-1.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="cosine with as many context tokens drawn at random",
    end="high",
    task="needles",
    options=NeedleOptions,
)
def external_context(model, lab, needle: NeedleOptions, *, share: float = 0.1):
    """Attend to context whose last-layer states resemble that of the token that is answered from.

    The external context score of ReDeEP: at each row of the answer, the tokens of the context to
    which the head attends most (a tenth of them) are averaged in their last-layer states, after the
    final norm; score = the cosine of this mean with the row's own last-layer state, averaged over
    rows and instances. ReDeEP reads a low score of copying heads as a sign of an answer that does
    not come from the context. Which heads copy is another score (`ov_copying`). The answer is given
    to the model (teacher forcing). The instances of a needle form a cluster.

    Cost: Two forward passes per instance; only the rows of the answer are formed. By default two
    passes per task and instance to choose the task, eight instances each.

    Null: the same cosine with as many context tokens drawn at random, the same for all heads.

    Not for: what a head writes: states of the last layer resemble each other in many models, so
    that any context token has a high cosine; compare with the null.

    Options:
        share: share of the context's tokens that are averaged; at least one token.

    Reference: Sun et al. 2025, "ReDeEP: Detecting Hallucination in Retrieval-Augmented Generation
    via Mechanistic Interpretability" (arXiv 2410.11414).
    """
    import torch

    from interp.core.errors import OptionError
    from interp.heads.experiments._needles import asked_instances, instance_trials
    from interp.heads.needle.copying import forced_prompts, instance_batches
    from interp.lens.finish import predicting_stack

    if not 0 < share <= 1:
        raise OptionError(f"share={share}: give a share of the context, above 0 and up to 1")
    task, instances, tried = asked_instances(model, lab.seed, needle)
    stack = predicting_stack(model)
    sites = [s for s in model.sites if s.stack == stack]
    values: dict = {s: [] for s in sites}
    null: dict = {s: [] for s in sites}
    draw = torch.Generator().manual_seed(lab.seed)
    done = 0
    for batch in instance_batches(instances):
        prompts, rows = forced_prompts(batch)
        states = _last_states(model, prompts)
        context = _context_positions(model, batch[0])
        number = max(1, int(share * len(context)))
        random = (
            torch.rand(len(batch), len(rows), len(context), generator=draw).topk(number).indices
        )

        def visit(
            site,
            call,
            real,
            rows=rows,
            states=states,
            context=context,
            number=number,
            random=random,
        ) -> None:
            if site not in values:
                return
            model.require_finite(call, site)
            pattern = call.pattern(rows.to(call.z.device))[..., context].cpu()
            row_states = states[:, rows]  # instance step d_model
            held = states[:, context]
            top = pattern.topk(number, dim=-1).indices  # instance head step number
            values[site].append(_cosine(row_states[:, None], held, top))
            drawn = _cosine(row_states[:, None], held, random[:, None])
            null[site].append(drawn.expand(-1, site.n_heads))

        model.read(prompts, visit)
        done += len(batch)
        lab.progress("external_context", done, len(instances))
    joined = [{site: torch.cat(x) for site, x in held.items()} for held in (values, null)]
    about = "as many context tokens drawn at random"
    return instance_trials(joined[0], joined[1], about, task, instances, tried)


def _last_states(model: Model, prompts):
    """Return the last stream after the final norm, `[instance, position, d_model]`."""
    from interp.lens.finish import finish, model_layers, predicting_stack

    stack = predicting_stack(model)
    last = model_layers(model, stack)[-1]
    cache = model.capture(prompts, ["resid_post"], stack=stack, layers=[last])
    x = finish(model, cache, stack).before_matrix(cache["resid_post", last, stack])
    return x.detach().double().cpu()


def _context_positions(model: Model, instance: Instance) -> list[int]:
    """Return the positions of the context without a BOS, where heads at rest attend."""
    from interp.core.prompts import bos_id

    return list(range(int(bos_id(model) is not None), len(instance.context)))


def _cosine(own, held, chosen):
    """Return the mean over steps of the cosine of states with means of chosen context states."""
    import torch

    at = torch.arange(len(held))[:, None, None, None]
    mean = held[at, chosen].mean(-2)
    return torch.nn.functional.cosine_similarity(own, mean, dim=-1).mean(-1)
