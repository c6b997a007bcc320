"""Heads that retrieve a needle from a haystack."""

from interp.heads.declaration import experiment
from interp.heads.needle.instance import NeedleOptions


@experiment(
    unit="share of the needle",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="about 1 / (tokens of the prompt)",
    task="needles",
    options=NeedleOptions,
)
def retrieval(model, lab, needle: NeedleOptions, *, success: float = 0.0, authors: bool = False):
    """Copy a needle out of a haystack: the top key is the token that the answer needs next.

    At each step of the answer a head copies if its largest weight is in the needle, on the token
    that comes next; score = the share of the needle's distinct tokens copied, averaged over
    instances. The answer is given to the model (teacher forcing): where its greedy answer is right,
    these are the rows of its own decoding. Instances that it cannot answer count too, and the notes
    give their number; `success` excludes them, as the paper does. The instances of a needle form a
    cluster, so more needles add more evidence than more haystacks.

    By default each task is tried on eight instances and the one that the model answers best is
    used; a model that answers none gets no scores, since attention alone is not retrieval.

    Cost: One forward pass per instance; only the rows of the answer are formed. By default two
    passes per task and instance to choose the task, eight instances each. `authors` generates.

    Not for: comparing models on the default task, which is chosen for each model: name a task.
    Heads that paraphrase or aggregate do not score, since only literal copies count. Few needles
    with many haystacks look precise but are not; use more needles.

    Options:
        task: `auto`; `ids` (a key and its values among random tokens); `completion` (the beginning
            of an earlier sentence) or `question` (a question about such a sentence; both in
            English, for models with a tokenizer); a family after RULER (`single_key`, `many_keys`,
            `many_values`, `variable_tracking`: see `interp.heads.needle.families`); or a
            JSONL file of needles (see `interp.heads.needle.task_file`).
        needles: number of different needles (from a file: the first ones).
        min_length, max_length, lengths: tokens of the shortest and of the longest prompt, and
            how many lengths from one to the other; sentences need at least twice a needle's length
            and the question.
        answer: number of tokens to copy per needle, in the task `ids` and the families.
        success: minimum share of the answer that is right; other instances are excluded (the
            authors use 0.5). The null is then the expected score of a top key drawn uniformly from
            the visible tokens.
        authors: count as the published code does: the model decodes by itself, and a repeated token
            counts again (so a score may exceed 1).

    Reference: Wu et al. 2024, "Retrieval Head Mechanistically Explains Long-Context Factuality".
    """
    from dataclasses import replace

    from interp.heads.experiments._needles import (
        COPIED,
        answered,
        chosen_task,
        instances_of,
        needle_notes,
        needle_report,
        unscored,
    )
    from interp.heads.needle import copy_paste, selection_stability
    from interp.heads.trials import Trials

    task, trials = needle.task, []
    if task == "auto":
        chosen, trials = chosen_task(model, lab.seed, needle.max_length, needle.answer)
        # if there is only one task, the instances below show how well the model does it
        task = chosen or "ids"
        if chosen is None and len(trials) > 1 and success <= 0:
            return unscored(model, trials)
    instances = instances_of(model, lab.seed, replace(needle, task=task), reads=COPIED)
    tried = copy_paste(
        model,
        instances,
        authors=authors,
        progress=lambda _, done, total: lab.progress("retrieval", done, total),
    )
    solved = tried.solved(success)
    if trials and not bool((tried.right >= 1).any()):
        return unscored(model, trials)
    notes = needle_report(tried, solved) | ({"tasks": needle_notes(trials)} if trials else {})
    if lab.notes and len(solved.instances) > 1:
        frame = selection_stability(solved, n_boot=200, seed=lab.seed).set_index("part")
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
        "clusters": [f"needle {x.needle}" for x in solved.instances],
    }
    if success <= 0:
        return Trials(solved.values, notes=notes, **about)
    null = {s: solved.chance[:, None].expand_as(x) for s, x in solved.values.items()}
    return Trials(solved.values, null, "an even draw of the top key, computed", notes, **about)


@experiment(
    unit="attention mass",
    low=-1.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="value of random weights",
    end="high",
    task="needles",
    options=NeedleOptions,
)
def qr_retrieval(model, lab, needle: NeedleOptions, *, calibrated: bool = True):
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
            tokenizer); a family after RULER (`single_key`, `many_keys`); or a JSONL file of needles
            (see `interp.heads.needle.task_file`).
        needles: number of different needles (from a file: the first ones).
        min_length, max_length, lengths: tokens of the shortest and of the longest prompt, and
            how many lengths from one to the other; sentences need at least twice a needle's length
            and the question.
        calibrated: subtract the attention of the uninformative question.

    Reference: Zhang et al. 2025, "Query-Focused Retrieval Heads Improve Long-Context Reasoning
    and Re-ranking".
    """
    from interp.heads.experiments._needles import asked_instances, instance_trials
    from interp.heads.needle import question_mass
    from interp.heads.per_head import by_site

    task, instances, tried = asked_instances(model, lab.seed, needle)
    mass = question_mass(
        model,
        instances,
        calibrated=calibrated,
        progress=lambda _, done, total: lab.progress("qr_retrieval", done, total),
    )
    values, null = (by_site(model, mass, x) for x in ("question_mass", "question_mass_other"))
    about = "a question about what is not there"
    return instance_trials(values, null, about, task, instances, tried)
