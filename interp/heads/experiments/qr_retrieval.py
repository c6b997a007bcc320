"""Query-focused retrieval heads."""

from interp.heads.declaration import experiment


@experiment(
    unit="attention mass",
    low=-1.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="value of random weights",
    end="high",
    task="needles",
)
def qr_retrieval(
    model,
    lab,
    *,
    task: str = "auto",
    needles: int = 8,
    shortest: int = 24,
    longest: int = 48,
    lengths: int = 2,
    depths: int = 3,
    answer: int = 4,
    calibrated: bool = True,
):
    """Attend from the question to the needle, more than an uninformative question does.

    Per head, the mean attention of the question's tokens on every key of the context, minus that of
    an uninformative question; keys more than two standard deviations below the mean are left out;
    the sum over the needle is averaged over instances. Nothing is generated, so models that cannot
    answer are scored too. Attention that does not depend on the question cancels; a random head's
    attention does depend on it, so a head is compared with random weights as well as with the null,
    the same score with a question about something absent from the context. The instances of a
    needle form a cluster.

    Cost: Per instance one prompt under three questions; nothing is generated. By default two passes
    per task and instance to choose the task, eight instances each.

    Null: the same score with a question about something absent from the context.

    Not for: showing that a head copies: attention mass on the needle does not put its token into
    the output.

    Options:
        task: `auto` (the task that the model answers best, `ids` if it answers none); `ids` (a key
            and its values among random tokens); `completion` (the beginning of an earlier sentence)
            or `question` (a question about such a sentence; both in English, for models with a
            tokenizer); or a JSONL file of needles (see `interp.heads.needle.task_file`).
        needles: number of different needles (from a file: the first ones).
        shortest, longest, lengths: shortest and longest prompt in tokens, and the number of lengths
            from one to the other; sentences need at least twice a needle's length and the question.
        depths: number of needle positions, from first to last.
        answer: number of tokens of the needle after its key, in the task `ids`.
        calibrated: subtract the attention of the uninformative question.

    Reference: Zhang et al. 2025, "Query-Focused Retrieval Heads Improve Long-Context Reasoning
    and Re-ranking".
    """
    from interp.heads.experiments._needles import chosen_task, instances_of, needle_notes
    from interp.heads.needle import question_mass
    from interp.heads.trials import Trials

    sizes, trials = (shortest, longest, lengths), []
    if task == "auto":
        chosen, trials = chosen_task(model, lab.seed, sizes, answer)
        task = chosen or "ids"
    instances = instances_of(model, lab.seed, task, needles, sizes, depths, answer)
    found = question_mass(
        model,
        instances,
        calibrated=calibrated,
        tell=lambda done, total: lab.tell("qr_retrieval", done, total),
    )
    notes = {"instances": f"{len(instances)}: {len({x.needle for x in instances})} needles"}
    headline = f"task {task}"
    if trials:
        notes["tasks"] = needle_notes(trials)
        headline += f", chosen as answered best ({', '.join(map(str, trials))})"
        if not any(t.answered for t in trials):
            headline = f"task {task}; the model answers none ({', '.join(map(str, trials))})"
    needle = [f"needle {x.needle}" for x in instances]
    return Trials(
        found.asked,
        found.other,
        "a question about what is not there",
        notes,
        clusters=needle,
        settled={"task": task},
        headline=headline,
    )
