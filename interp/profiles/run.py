"""Profile every head of a model on a corpus of text."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.core.errors import OptionError, UnknownName
from interp.core.memory import return_freed
from interp.core.shards import Shard
from interp.core.tokens import words
from interp.model.content import model_provenance
from interp.model.model_argument import one_model
from interp.model.precision import on_its_device
from interp.profiles.behaviour_facts import BehaviourFacts
from interp.profiles.behaviours import behaviours_of
from interp.profiles.corpus import Sample
from interp.profiles.dimensions import dimensions_read
from interp.profiles.edges import edges_per_window
from interp.profiles.effects import EffectOptions, Effects, measure_effects
from interp.profiles.entries import key_sets
from interp.profiles.examples import examples_of
from interp.profiles.explain import EVERYWHERE, NOWHERE, Description, describe
from interp.profiles.first_look import Look, Sums, first_look, groups_of
from interp.profiles.head_edges import HeadEdges
from interp.profiles.judged_lists import ListJudge
from interp.profiles.judgement import Judge
from interp.profiles.kept_rows import KeptRows
from interp.profiles.listed_site import (
    FITTED,
    ListedSite,
    Listing,
    SitePages,
    listed_site,
    visible_of,
)
from interp.profiles.named_by_score import ScoreNames
from interp.profiles.predictions import prediction_of
from interp.profiles.reads import TokenReads
from interp.profiles.result import Profile, effect_rows, head_name, number_rows, row_model_of
from interp.profiles.rows_read import described_sites
from interp.profiles.rules import chosen_rules
from interp.profiles.sampled import text_sample
from interp.profiles.second_look import JudgedRows, second_look
from interp.profiles.sentence import numbers_said
from interp.profiles.steps import ProfileSteps
from interp.profiles.token_model import token_vectors

if TYPE_CHECKING:
    from interp.core.protocols import Progress
    from interp.model.model import Model
    from interp.profiles.rules import KeyRule


@on_its_device
def profile(
    model: Any,
    corpus: Any = None,
    *,
    field: str = "text",
    rules: Iterable[str | KeyRule | Any] | None = None,
    heads: Sequence[str] | None = None,
    n_documents: int = 400,
    n_queries: int | None = 16,
    max_length: int = 256,
    effects: bool = True,
    behaviours: bool = True,
    n_ablated: int = 8,
    n_ablation_documents: int = 64,
    seed: int = 0,
    resume: str | os.PathLike | None = None,
    shard: str | Shard | None = None,
    progress: Progress | None = None,
) -> Profile:
    """Describe what every head does on a corpus, and judge the description on unseen documents.

    Random documents are split in two parts. On the first an ordered list of at most five sets of
    keys is chosen for each head, of which the first match counts; on the second the share of the
    attention off the sink on each of them is counted, and the list is judged by the share of the
    head's pattern that it explains: of the KL divergence from even attention, off the sink. A head
    is described if its list explains at least .5, in part from .25 on. Up to three lines say what
    it does at particular queries, such as before closing quotation marks: they are chosen and
    judged on the same parts, and have at least .1 of the attention there beyond position.

    Beside the list stand row models that are fitted on each part and judged on the other: even
    attention, offset, position, all rules together (which keys a rule names), and the two tokens
    (whatever the pair of query and key token alone can say); the rest needs context.

    Of a model that predicts tokens (the next one, or masked ones) it is also measured whether a
    head matters on the corpus and what it writes: by gradient the change of the loss if the head is
    replaced by its mean (an estimate, for all heads), by ablation that change itself, and the share
    of the pattern's effect on the predictions that each description keeps.

    Args:
        model: a model, or anything that `interp.load` accepts.
        corpus: files or folders of text, JSON lines, Parquet or Arrow, texts, lists of token ids,
            or a `DocumentCorpus`; "bundled" for the short texts that come with the package,
            "sampled" for texts that the model writes. By default the texts that come with
            the model, else the bundled texts, if they suit it, else at most 64 texts that it
            writes; real texts are always better.
        field: field or column of the text, or of token ids.
        rules: rules to try: names, detectors, or functions of (query, key) or (query, key, tokens);
            by default all that the package declares.
        heads: heads to describe, such as L5H4; all by default.
        n_documents: number of random documents.
        n_queries: number of random queries read of each document; None: all.
        max_length: longest window of a document, in tokens; a longer document gives a random one.
        effects: estimate the effect of every head on the loss, and read what it writes.
        behaviours: sample pairs of query and key, which tell behaviours and dimensions apart.
        n_ablated: heads that are ablated, those with the largest estimates; those of `heads` where
            heads are named.
        n_ablation_documents: documents on which they are, at most half of all: the others choose
            the heads. Where heads are named, also those on which their effects are estimated.
        seed: seed of every random choice.
        resume: folder with finished steps, from which a run that was stopped goes on.
        shard: part of the steps, such as 1/4, for one of several jobs that share the resume folder.
            Steps come in phases, and a phase needs the whole of the one before: a job ends
            where other jobs have not done their part, and goes on when it is run again.
        progress: called with the name of the step, the steps done and their number.

    Raises:
        PromptError: the corpus cannot be read, or has too few distinct documents.
        OptionError: the model has no softmax attention over text, or an option does not fit.
        UnknownName: there is no such rule or head.
        ShardsMissing: other shards have not done the steps that this one needs now.
    """
    loaded = one_model(model)
    sites = described_sites(loaded)
    size = {"n_documents": n_documents, "n_queries": n_queries, "max_length": max_length}
    sample = text_sample(loaded, sites, corpus, field, resume, progress, seed=seed, **size)
    chosen = chosen_rules(rules, loaded.tokenizer is not None)
    wanted = wanted_heads(loaded, sites, heads)
    sites = [site for site in sites if any(s is site for s, _ in wanted)]
    windows = sample.windows
    ids = np.concatenate([window.ids for window in windows])
    fitting = [window.ids for window in windows if window.part == FITTED]
    look = Look(loaded, sites, chosen, token_vectors(loaded, ids), fitting, len(fitting))
    measured_effects = EffectOptions(
        prediction_of(loaded, sites, seed) if effects else "not asked for",
        n_ablated,
        n_ablation_documents,
        None if heads is None else tuple(look.places[site].start + h for site, h in wanted),
    )
    steps = ProfileSteps(
        loaded,
        {"": sample},
        chosen,
        [site.name for site in sites],
        size,
        resume=resume,
        shard=Shard.parse(shard) if isinstance(shard, str) else shard,
        progress=progress,
        total=2 * (len(windows) + len(sites)) + 8 + measured_effects.n_steps(windows),
        complete=effects and behaviours,
    )
    groups, kept = groups_of(windows), KeptRows()
    sizes = [len(group) for group in groups]
    sums = steps.phase(
        [f"sums {at}" for at in range(len(groups))],
        lambda at: first_look(look, [windows[i] for i in groups[at]], steps.advance, kept),
        Sums,
        sizes,
    )
    live, dead = live_rules(look, sample)
    half = sum(windows[group[0]].part == 0 for group in groups)
    sides = (slice(0, half), slice(half, None))
    fitted = steps.phase(
        ["description 0", "description 1"],
        lambda at: describe(look, windows, groups[sides[at]], sums[sides[at]], live, steps.advance),
        Description,
        [4, 4],
    )
    sets = key_sets(chosen, causal=all(site.causal for site in sites))
    listing = Listing(look, windows, sets, kept)
    listed = steps.phase(
        [f"lists and lines {site.name}" for site in sites],
        lambda at: listed_site(
            SitePages(listing, visible_of(sums, groups, at), sites[at], fitted[FITTED]),
            lambda i: next_document(windows, i),
            steps.advance,
        ),
        ListedSite,
        [2] * len(sites),
    )
    judged = steps.phase(
        [f"judged {at}{'' if behaviours else ', no edges'}" for at in range(len(groups))],
        lambda at: second_look(
            look,
            [windows[i] for i in groups[at]],
            [next_document(windows, i) for i in groups[at]],
            fitted[1 if at < half else 0],
            seed,
            steps.advance,
            edges_per_window(loaded, len(windows)) if behaviours else 0,
            None if behaviours else partial(listing.rows, sums, groups),
        ),
        JudgedRows,
        sizes,
    )
    whole = JudgedRows.joined(judged, [i for group in groups for i in group])
    del sums, judged
    return_freed()
    measured = measure_effects(
        look,
        windows,
        groups,
        lambda i: next_document(windows, i),
        fitted,
        measured_effects,
        whole.edge_rows,
        seed,
        steps,
    )
    parameters = np.stack([one.rules.numpy() for one in fitted])
    provenance = model_provenance(loaded) | dict(
        sample.facts,
        corpus_hash=sample.hash,
        rules=[rule.name for rule in chosen],
        rules_without_use=dead,
        sink="the first token, special tokens, and learned sinks",
        effects=dict(measured.facts),
        made_by="interp.profile",
        options=size,
    )
    lists = [
        ListJudge(one, sample, sets, look.reader, lambda token: words(loaded, (token,))[0], seed)
        for one in listed
    ]
    result = _answered(
        loaded, look, sample, whole, parameters, lists, measured, wanted, seed, provenance
    )
    places = [look.places[site].start + h for site, h in wanted]
    words_of = look.reader.corpus
    assert words_of is not None
    row_model = row_model_of(fitted, places, provenance["rules"], words_of)
    return replace(result, row_model=row_model, texts=sample.written)


def wanted_heads(model: Model, sites: Sequence[Any], heads: Sequence[str] | None) -> list[tuple]:
    """Return site and number of the heads that are asked for."""
    every = [(site, h) for site in sites for h in range(site.n_heads)]
    many = len({site.stack for site in sites}) > 1
    names = {head_name(site.stack, site.layer, h, many): (site, h) for site, h in every}
    if heads is None:
        return every
    asked = [str(head) for head in ([heads] if isinstance(heads, str) else heads)]
    for name in asked:
        if name not in names:
            raise UnknownName(f"head of {model.name}", name, names)
    if not asked:
        raise OptionError("heads is empty; name heads such as L5H4, or leave it out for all")
    return [names[name] for name in dict.fromkeys(asked)]


def next_document(windows: Sequence[Any], at: int) -> Any:
    """Return the next document of another cluster that is at least as long, or else the next."""
    rest = [*windows[at + 1 :], *windows[:at]]
    rest = [w for w in rest if w.cluster != windows[at].cluster]
    return next((w for w in rest if len(w.ids) >= len(windows[at].ids)), rest[0])


def live_rules(look: Look, sample: Sample) -> tuple[torch.Tensor, list[str]]:
    """Return which rules can tell keys apart, and the names of the others.

    A rule that fires nowhere, on all keys, or on the keys of an earlier rule says nothing.
    """
    fired, keys = torch.zeros(len(look.rules), dtype=torch.double), 0.0
    digests = [hashlib.blake2b(digest_size=16) for _ in look.rules]
    for window in sample.windows:
        before = torch.as_tensor(window.queries)[:, None] >= torch.arange(len(window.ids))
        before[:, 0] = False
        masks = look.masks(window) & before
        fired += masks.sum((1, 2))
        keys += float(before.sum())
        for digest, mask in zip(digests, masks.numpy(), strict=True):
            digest.update(np.packbits(mask).tobytes())
    share = fired / max(keys, 1.0)
    lines = [digest.digest() for digest in digests]
    first = torch.tensor([lines.index(one) == at for at, one in enumerate(lines)], dtype=torch.bool)
    live = (share > NOWHERE) & (share < EVERYWHERE) & first
    return live, [rule.name for rule, is_live in zip(look.rules, live, strict=True) if not is_live]


def _answered(
    model: Model,
    look: Look,
    sample: Sample,
    whole: JudgedRows,
    parameters: np.ndarray,
    lists: Sequence[ListJudge],
    effects: Effects,
    wanted: Sequence[tuple],
    seed: int,
    provenance: dict[str, Any],
) -> Profile:
    """Judge the heads that are asked for, and collect their examples."""
    windows = sample.windows
    judge = Judge(
        whole,
        [w.cluster for w in windows],
        [w.part for w in windows],
        parameters,
        look.rules,
        seed,
    )
    reads, score_names = TokenReads(whole, windows, seed), ScoreNames(look, windows, whole)
    several = BehaviourFacts(model, windows, whole, look.rules, effects.edges, seed)
    many = len({site.stack for site in look.sites}) > 1
    rows, quantiles, descriptions, examples = [], [], [], []
    texts: dict[int, tuple[str, ...]] = {}
    for site, h in wanted:
        place = look.places[site].start + h
        numbers = judge.numbers(place)
        judges = lists[look.sites.index(site)]
        described = judges.of(h)
        name = head_name(site.stack, site.layer, h, many)
        where = {"stack": site.stack, "layer": site.layer, "head": h}
        more, ends = number_rows(where, numbers, described, judge.n)
        mine, edges = effects.of(place), HeadEdges.of(whole, place)
        read = dimensions_read(edges, several.cluster_of, judge.n)
        added, added_ends = effect_rows(where, {**read, **mine.numbers})
        rows += more + added
        quantiles += ends + added_ends
        entries = {one.number: one.phrase for one in described.entries}
        owners = [x[h] for x in judges.listed.owner]
        plain, of_entry = examples_of(model, windows, whole, place, seed, texts, owners, entries)
        descriptions.append(
            {
                **where,
                "name": name,
                "status": described.grade,
                "mixed": dict(described.mixed),
                "lines": [one.plain() for one in described.lines],
                "score_name": score_names.of(place, described.entries),
                "numbers": numbers_said({**numbers, **described.numbers}),
                "entries": [
                    {**one.plain(), "examples": of_entry[one.number]} for one in described.entries
                ],
                "reads": reads.of(place, lambda token: words(model, (token,))[0]),
                **several.of(place, edges, judge.held(place, sign=1), texts),
                **mine.plain(),
            }
        )
        examples += [{"name": name, **one} for one in plain]
    return Profile(
        tuple(rows),
        np.array(quantiles),
        tuple(descriptions),
        tuple(examples),
        provenance,
        behaviours_of(judge, [look.places[site].start + h for site, h in wanted]),
    )
