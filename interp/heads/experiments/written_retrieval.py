"""Heads that write the answer of a needle, whether or not they look at its words."""

from interp.heads.declaration import experiment


@experiment(
    unit="logits",
    requires=("tokens", "causal"),
    chance="0: the needle's tokens write no more of the answer than other tokens do",
    end="high",
    task="needles",
)
def written_retrieval(
    model,
    lab,
    *,
    task: str = "auto",
    needles: int = 8,
    min_length: int = 24,
    max_length: int = 48,
    lengths: int = 2,
    depths: int = 3,
    answer: int = 4,
):
    """Write the answer from the needle: logits of it by way of the needle's tokens against others.

    At each step of the answer, a key's part is its weight times the logit of the answer token that
    its value writes through the head's output (W_U with the final norm's weight folded in, without
    its scale and mean over the vocabulary). The score is the sum of the parts over the needle minus
    that over all other keys, scaled to the needle's number of keys; a mean over steps and
    instances. Unlike `retrieval`, a head counts that copies no word literally. The answer is given
    to the model (teacher forcing). The instances of a needle form a cluster.

    Cost: One forward pass per instance; only the rows of the answer are formed. By default two
    passes per task and instance to choose the task, eight instances each.

    Null: the same score for the answers of other needles.

    Not for: comparing layers or models in logits: the scale of the final norm is left out, so
    scores of different prompts have different scales. Use them to order heads.

    Options:
        task: `auto` (the task that the model answers best, `ids` if it answers none); `ids` (a key
            and its values among random tokens); `completion` (the beginning of an earlier sentence)
            or `question` (a question about such a sentence; both in English, for models with a
            tokenizer); or a JSONL file of needles (see `interp.heads.needle.task_file`).
        needles: number of different needles (from a file: the first ones).
        min_length, max_length, lengths: tokens of the shortest and of the longest prompt, and
            how many lengths from one to the other; sentences need at least twice a needle's length
            and the question.
        depths: number of needle positions, from first to last.
        answer: number of tokens of the needle after its key, in the task `ids`.

    Reference: Gema, Alex and Minervini 2026 (arXiv 2607.01002), which uses the raw row of the
    unembedding.
    """
    import torch

    from interp.heads.experiments._needles import chosen_task, instances_of, needle_notes
    from interp.heads.needle.copying import forced_prompts, instance_batches
    from interp.heads.trials import Trials
    from interp.model.calls.call import repeat_kv
    from interp.model.locate.weights import embeddings, head_weights, predicting_sites

    sizes, trials = (min_length, max_length, lengths), []
    if task == "auto":
        chosen, trials = chosen_task(model, lab.seed, sizes, answer)
        task = chosen or "ids"
    instances = instances_of(model, lab.seed, task, needles, sizes, depths, answer)
    sites = predicting_sites(model)
    unembedding = embeddings(model).W_U
    maps = {site: head_weights(model, site).W_O for site in sites}
    parts: dict = {site: ([], []) for site in sites}
    done = 0
    for batch in instance_batches(instances):
        prompts, rows = forced_prompts(batch)
        others = [_other(instances, x) for x in batch]
        tokens = [torch.tensor([x.answer for x in side]) for side in (batch, others)]
        length = len(prompts.ids[0])
        inside = torch.zeros(len(batch), length, dtype=torch.bool)
        for row, x in zip(inside, batch, strict=True):
            row[slice(*x.span)] = True

        def visit(site, call, real, tokens=tokens, inside=inside, rows=rows) -> None:
            if site not in maps:
                return
            model.require_finite(call, site)
            pattern = call.pattern(rows.to(call.z.device)).double().cpu()
            value = repeat_kv(call.v, site.n_heads).double().cpu()
            for held, answers in zip(parts[site], tokens, strict=True):
                u = unembedding.double().cpu()[:, answers]  # d_model prompt step
                read = torch.einsum("hvd,dbs->bhsv", maps[site].double().cpu(), u)
                part = pattern * torch.einsum("bhsv,bhkv->bhsk", read, value)
                held.append(_contrast(part, inside, rows))

        model.read(prompts, visit, last=len(rows))
        done += len(batch)
        lab.progress("written_retrieval", done, len(instances))
    notes = {"instances": f"{len(instances)}: {len({x.needle for x in instances})} needles"}
    headline = f"task {task}"
    if trials:
        notes["tasks"] = needle_notes(trials)
        headline += f", chosen as answered best ({', '.join(map(str, trials))})"
    values, null = ({site: torch.cat(held[at]) for site, held in parts.items()} for at in (0, 1))
    return Trials(
        values,
        null,
        "answers of other needles",
        notes,
        clusters=[f"needle {x.needle}" for x in instances],
        settled={"task": task},
        headline=headline,
    )


def _other(instances, mine):
    """Return an instance of another needle with an answer of the same length."""
    for x in instances:
        if x.needle != mine.needle and len(x.answer) == len(mine.answer):
            return x
    return mine


def _contrast(part, inside, rows):
    """Sum parts over the needle, minus those of the other visible keys scaled to its size."""
    import torch

    visible = torch.arange(part.shape[-1]) <= rows[:, None]  # step key
    needle = (inside[:, None] & visible)[:, None]
    other = (~inside[:, None] & visible)[:, None]
    scale = needle.sum(-1) / other.sum(-1)
    return ((part * needle).sum(-1) - scale * (part * other).sum(-1)).mean(-1)
