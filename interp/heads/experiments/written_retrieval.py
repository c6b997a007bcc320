"""Heads that write the answer of a needle, whether or not they look at its words."""

from interp.heads.declaration import experiment
from interp.heads.needle.instance import NeedleOptions


@experiment(
    unit="logits",
    requires=("tokens", "causal"),
    chance="0: the needle's tokens write no more of the answer than other tokens do",
    end="high",
    task="needles",
    options=NeedleOptions,
)
def written_retrieval(model, lab, needle: NeedleOptions):
    """Write the answer from the needle: logits of it by way of the needle's tokens against others.

    At each step of the answer, a key's part is its weight times the logit of the answer token that
    its value writes through the head's output (W_U with the final norm's weight folded in, without
    its scale and mean over the vocabulary). The score is the sum of the parts over the needle minus
    that over all other keys, scaled to the needle's number of keys; a mean over steps and
    instances. Where an answer is asked for at once, it is the mean over its tokens. Unlike
    `retrieval`, a head counts that copies no word literally. The answer is given to the model
    (teacher forcing). The instances of a needle form a cluster.

    Cost: One forward pass per instance; only the rows of the answer are formed. By default two
    passes per task and instance to choose the task, eight instances each.

    Null: the same score for the answers of other needles; of one needle, that of random weights.

    Not for: comparing layers or models in logits: the scale of the final norm is left out, so
    scores of different prompts have different scales. Use them to order heads.

    Options:
        task: as in `retrieval`, and the family `common_words`; `auto` is the task that the model
            answers best, else `ids`.
        answer: number of tokens to find per needle, in the task `ids` and the families.

    Reference: Gema, Alex and Minervini 2026 (arXiv 2607.01002), which uses the raw row of the
    unembedding.
    """
    import torch

    from interp.heads.experiments._needles import asked_instances, instance_trials
    from interp.heads.needle.copying import forced_prompts, instance_batches, source_mask
    from interp.heads.needle.families import FAMILIES
    from interp.model.calls.call import repeat_kv
    from interp.model.locate.head_outputs import head_outputs, read_for_run, writing_weights
    from interp.model.locate.weights import embeddings, predicting_sites

    task, instances, tried = asked_instances(model, lab.seed, needle, reads=FAMILIES)
    unembedding = embeddings(model).W_U.double().cpu()
    maps = {s: writing_weights(model, s) for s in predicting_sites(model)}
    for weights in maps.values():
        read_for_run(weights)
    others = [x for x in (_other(instances, x) for x in instances) if x is not None]
    sides = (instances, others) if len(others) == len(instances) else (instances,)
    parts: list[dict] = [{site: [] for site in maps} for _ in sides]
    done = 0
    for batch in instance_batches(instances):
        prompts, rows = forced_prompts(batch)
        inside = source_mask(batch, len(prompts.ids[0]))
        mine = slice(done, done + len(batch))
        # rows of the unembedding: d_model prompt step, of these answers and of other needles'
        wanted = [unembedding[:, torch.tensor([x.answer for x in side[mine]])] for side in sides]
        if batch[0].at_once:
            wanted = [u.mean(-1, keepdim=True) for u in wanted]  # of all tokens of the answer

        def visit(site, call, real, wanted=wanted, inside=inside, rows=rows) -> None:
            if site not in maps:
                return
            model.require_finite(call, site)
            pattern = call.pattern(rows.to(call.z.device)).double().cpu()
            value = repeat_kv(call.v, site.n_heads).double().cpu()
            z = call.z[:, :, rows.to(call.z.device)].transpose(1, 2)  # prompt step head d_v
            outputs = head_outputs(maps[site], z.double())
            for held, u in zip(parts, wanted, strict=True):
                read = outputs.along(u.movedim(0, -1).to(z.device)).cpu().transpose(1, 2)
                part = pattern * torch.einsum("bhsv,bhkv->bhsk", read, value)
                held[site].append(_contrast(part, inside, rows))

        model.read(prompts, visit, last=len(rows))
        done += len(batch)
        lab.progress("written_retrieval", done, len(instances))
    values, *null = ({site: torch.cat(x) for site, x in held.items()} for held in parts)
    about = "answers of other needles" if null else ""
    return instance_trials(values, null[0] if null else None, about, task, instances, tried)


def _other(instances, mine):
    """Return an instance of another needle with an answer of the same length, if there is one."""
    same = (x for x in instances if x.needle != mine.needle and len(x.answer) == len(mine.answer))
    return next(same, None)


def _contrast(part, inside, rows):
    """Sum parts over the needle, minus those of the other visible keys scaled to its size."""
    import torch

    visible = torch.arange(part.shape[-1]) <= rows[:, None]  # step key
    needle = (inside[:, None] & visible)[:, None]
    other = (~inside[:, None] & visible)[:, None]
    scale = needle.sum(-1) / other.sum(-1)
    return ((part * needle).sum(-1) - scale * (part * other).sum(-1)).mean(-1)
