"""Retrieval heads."""

from interp.heads.declaration import experiment


@experiment(
    unit="share of the needle",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="about 1 / (tokens of the prompt)",
)
def retrieval(
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
    success: float = 0.0,
    authors: bool = False,
):
    """Copies a needle out of a haystack: its top key is the very token of the answer.

    At each step of the answer a head copies if its largest weight lies in the needle on the token
    that comes next; score = the share of the needle's distinct tokens copied, mean over instances.
    The answer is given to the model (teacher forcing): where its own greedy answer is right, these
    are the rows of its decoding. Instances it cannot answer count as well, and the notes say how
    many; `success` leaves them out, as the paper does. The instances of a needle are a cluster, so
    more needles say more than more haystacks.

    By default each task is tried on eight instances and the one that the model answers best is
    taken; a model that answers none gets no scores, since attention alone is no retrieval.

    Cost: Per instance one forward pass; only the rows of the answer are formed. By default two
    passes per task and instance to choose the task, eight instances each. `authors` generates.

    Not for: comparing models on the default task, which is chosen for each model: name one. Heads
    that paraphrase or collect do not score, since only literal copies count. Few needles with many
    haystacks look precise and are not; take more needles.

    Options:
        task: `auto`; `ids`, a key and its values among random tokens; `completion`, the beginning
            of a sentence read before, and `question`, one about such a sentence (both English, for
            models with a tokenizer); or a JSONL file of needles (see
        `interp.heads.needle.task_file`).
        needles: different needles (of a file: the first so many).
        shortest, longest, lengths: so many lengths of prompt from shortest to longest, in tokens;
            sentences take at least twice a needle's length and the question.
        depths: places of the needle, from first to last.
        answer: tokens to copy per needle, in the task `ids`.
        success: leave out instances with less of the answer right (the authors take 0.5); the null
            is then a top key drawn evenly from what is visible, computed.
        authors: as the published code counts: the model decodes by itself, and a token written
            again counts again (so a score may pass 1).

    Reference: Wu et al. 2024, "Retrieval Head Mechanistically Explains Long-Context Factuality".
    """
    from interp.heads.declaration import Trials
    from interp.heads.experiments._needles import (
        answered,
        chosen_task,
        instances_of,
        needle_notes,
        needle_report,
        unscored,
    )
    from interp.heads.needle import copy_paste, selection_stability

    sizes, trials = (shortest, longest, lengths), []
    if task == "auto":
        chosen, trials = chosen_task(model, lab.seed, sizes, answer)
        # with one task to choose from, the instances below say how the model does on it
        task = chosen or "ids"
        if chosen is None and len(trials) > 1 and success <= 0:
            return unscored(model, trials)
    instances = instances_of(model, lab.seed, task, needles, sizes, depths, answer)
    tried = copy_paste(
        model,
        instances,
        authors=authors,
        tell=lambda done, total: lab.tell("retrieval", done, total),
    )
    found = tried.solved(success)
    if trials and not bool((tried.right >= 1).any()):
        return unscored(model, trials)
    notes = needle_report(model, tried, found) | ({"tasks": needle_notes(trials)} if trials else {})
    if lab.notes and len(found.instances) > 1:
        frame = selection_stability(found, draws=200, seed=lab.seed).set_index("part")
        whole = frame.loc["all"]
        notes["heads at 0.1 or more"] = (
            f"{whole['heads']:.0f} [{whole['heads_low']:.0f}, {whole['heads_high']:.0f}]"
        )
        each = frame[frame.index.str.startswith("needle")]
        if len(each):
            notes["top heads shared with the other needles"] = (
                f"{each['overlap'].mean():.2f} on average, {each['overlap'].min():.2f} at worst"
            )
    about = {
        "settled": {"task": task},
        "headline": answered(task, tried, bool(trials)),
        "clusters": [f"needle {x.needle}" for x in found.instances],
    }
    if success <= 0:
        return Trials(found.values, notes=notes, **about)
    null = {s: found.chance[:, None].expand_as(x) for s, x in found.values.items()}
    return Trials(found.values, null, "an even draw of the top key, computed", notes, **about)
