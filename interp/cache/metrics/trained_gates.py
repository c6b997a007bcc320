"""Trained gates of retrieval heads."""

from interp.heads.declaration import experiment
from interp.heads.needle.instance import SourceOptions


@experiment(
    unit="gate",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="gate of random weights, whose even attention holds the mean of far keys",
    task="none: the gates were trained on a task of their own",
    options=SourceOptions,
)
def trained_gates(
    model,
    lab,
    needle: SourceOptions,
    *,
    trials: int = 2,
    sink: int = 2,
    recent: int = 8,
    steps: int = 60,
    rate: float = 0.02,
    penalty: float = 0.05,
    relative: bool = True,
):
    """Need keys beyond a sink and a window: gates between a full and a cut cache, by training.

    One gate per key-value head mixes its output with full attention (gate 1) and with attention to
    the first and last tokens only (gate 0). The gates are trained so that the last hidden states of
    question and answer stay those of the full model, with a penalty on the mean gate. The score is
    the trained gate; query heads of a group share it. Every trial trains on needles of its own.

    Cost: One forward and one backward pass of four prompts per step and trial, 60 steps by default.

    Not for: a threshold of 1/2, since the penalty sets the level: rank the heads. Nor for the loss
    of a cut, which `cache_loss` measures; a head that writes what nothing reads also gets a gate
    near 1.

    Options:
        needles: number of different needles, divided among the trials.
        trials: number of trainings.
        sink: first tokens that a cut cache keeps (the authors train with 128).
        recent: last tokens that it keeps, the current one included (the authors: 256).
        steps: updates per training (the authors: 2000).
        rate: highest learning rate.
        penalty: weight of the mean gate in the loss.
        relative: divide the distance of hidden states by their mean square; the published code does
            not, so its penalty depends on the model's scale.

    Reference: Xiao et al. 2024, "DuoAttention: Efficient Long-Context LLM Inference with Retrieval
    and Streaming Heads" (there with ten passkeys of 32 words in a book).
    """
    import torch

    from interp.cache.gates import train_gates
    from interp.cache.windows import Window
    from interp.core.errors import OptionError
    from interp.heads.experiments._needles import asked_instances, needle_notes
    from interp.heads.trials import Trials

    if not 1 <= trials <= needle.needles:
        raise OptionError(
            f"trials={trials}, needles={needle.needles}: every trial needs its own needle"
        )
    task, instances, tried = asked_instances(model, lab.seed, needle)
    each = []
    for trial in range(trials):
        mine = [x for x in instances if x.needle % trials == trial]
        each.append(
            train_gates(
                model,
                mine,
                Window(sink, recent),
                steps=steps,
                rate=rate,
                penalty=penalty,
                relative=relative,
                seed=lab.seed + trial,
                progress=lambda _, done, total, at=trial: lab.progress(
                    "trained_gates", at * total + done, trials * total
                ),
            )
        )
    values = {
        site: torch.stack([gates[site] for gates in each]).repeat_interleave(
            site.n_heads // site.n_kv_heads, 1
        )
        for site in each[0]
    }
    notes = {"window": f"{sink} first and {recent} last tokens, {steps} steps"}
    notes |= {"tasks": needle_notes(tried)} if tried else {}
    return Trials(values, notes=notes, settled={"task": task}, headline=f"task {task}")
