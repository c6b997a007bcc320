"""Named heads planted by hand on texts: found, the bystander not, and the null at chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from circuits.handmade import MATCH, Handmade
from circuits.speller import speller
from scipy.stats import t as student
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

import interp
from interp.causal.steering.function_vectors import find_function_vector
from interp.causal.steering.in_context import FUNCTIONS
from interp.circuits.head_checks import confirm
from interp.circuits.head_tasks import own_task
from interp.circuits.tasks import fact_pairs as facts
from interp.circuits.tasks import ioi_pairs as ioi
from interp.core.clusters import cluster_summary
from interp.core.rank_statistics import auroc
from interp.core.registry import METRICS
from interp.core.resources import folder
from interp.heads.causal_check.needles import Unanswered
from interp.heads.trials import Trials


def found_by_rule(
    model: interp.Model, metric: str, planted: set[str], bystander: str, **options: Any
) -> Trials:
    """The planted heads score above all others and above the null; the bystander does not."""
    found = METRICS.load(metric).bind(**options).experiment(model, 0, lambda *x: None)
    assert found.null is not None, found.headline
    names, scores, nulls, p = [], [], [], []
    for site, x in found.values.items():
        for head in range(site.n_heads):
            kept = x[:, head].isfinite() & found.null[site][:, head].isfinite()
            if kept.any():
                gap = cluster_summary(
                    (x - found.null[site])[kept][:, [head]].numpy(),
                    None
                    if found.clusters is None
                    else [c for c, k in zip(found.clusters, kept.tolist(), strict=True) if k],
                )
                names.append(f"L{site.layer}H{head}")
                scores.append(float(x[kept, head].mean()))
                nulls.append(float(found.null[site][kept, head].mean()))
                distance = gap.score[0] / gap.sem[0] if gap.sem[0] else np.inf
                p.append(2 * student.sf(abs(distance), gap.clusters - 1))
    assert names, found.headline
    truth = np.array([name in planted for name in names])
    assert auroc(np.array(scores), truth) == 1
    assert auroc(np.array(scores) - np.array(nulls), truth) == 1
    best = min(x for x, true in zip(scores, truth, strict=True) if true)
    at = names.index(bystander)
    assert abs(scores[at] - nulls[at]) < 0.05 * best
    assert all(x < 0.01 for x, true in zip(p, truth, strict=True) if true)
    return found


@pytest.fixture(scope="module")
def giving() -> interp.Model:
    """Duplicate names are found, inhibited at the end, and the mover copies the other name."""
    tokenizer = speller(begin=True)
    n = len(ioi.NAMES)
    spaces = {"name": n, "end": 1, "double": n, "inhibited": n, "out": n, "unread": n}
    made = Handmade(tokenizer, spaces, layers=3)
    for i, name in enumerate(ioi.NAMES):
        for spelled in (name, f" {name}"):
            made.embedding[tokenizer.convert_tokens_to_ids(spelled), made.at["name"].start + i] = 1
        token = tokenizer.convert_tokens_to_ids(f" {name}")
        made.unembedding[token, made.at["out"].start + i] = 1
    made.embedding[tokenizer.convert_tokens_to_ids(" to"), made.at["end"]] = 1
    name, position = made.eye("name"), made.eye("position")
    made.head(
        0,
        1,
        [made.rest(), (MATCH, name, name), (-2 * MATCH, position, position)],
        [(name, made.eye("double"))],
    )
    seen = [made.rest(), (MATCH, made.eye("end"), made.total("double"))]
    made.head(1, 2, seen, [(made.eye("double"), made.eye("inhibited"))])
    made.head(1, 3, seen, [(made.eye("double"), made.eye("unread"))])
    made.head(
        2,
        0,
        [
            made.rest(),
            (MATCH, made.eye("end"), made.total("name")),
            (-MATCH, made.eye("inhibited"), name),
        ],
        [(name, 10 * made.eye("out"))],
    )
    return made.build("giving")


def test_a_planted_name_mover_is_found(giving) -> None:
    found_by_rule(giving, "name_mover", {"L2H0"}, "L1H3")


def test_a_planted_s_inhibition_head_is_found(giving) -> None:
    found = found_by_rule(giving, "s_inhibition", {"L1H2"}, "L1H3", movers=1, pairs=32)
    assert found.values[giving.sites[2]].isnan().all()  # its heads cannot reach the mover
    assert all(float(x.nan_to_num().abs().max()) < 0.05 for x in found.null.values())


def test_the_check_of_a_planted_role_is_on_its_own_task(giving) -> None:
    """Without the S-inhibition head the giver leads; without the bystander nothing changes."""
    for head, harmed in (("L1H2", True), ("L1H3", False)):
        check = confirm(giving, {"s_inhibition": [head]}, n_random=4).of("s_inhibition", "own")
        assert check.task == "ioi"
        assert (check.damage > 5) == harmed
        assert harmed or abs(check.damage) < 0.01


@pytest.mark.parametrize("metric", ["function_vector", "s_inhibition"])
def test_longest_bounds_the_prompts_of_every_own_task(giving, metric: str) -> None:
    whole = own_task(giving, metric, n=20)
    assert whole is not None
    lengths = [len(ids) for ids in whole.prompts.ids]
    longest = max(lengths) - 1
    short = own_task(giving, metric, n=20, max_length=longest)
    assert short is not None
    assert max(map(len, short.prompts.ids)) <= longest
    assert len(short) == (20 if metric == "function_vector" else sum(x <= longest for x in lengths))
    assert len(short)
    assert own_task(giving, metric, n=20, max_length=max(lengths)).hash == whole.hash  # type: ignore[union-attr]
    with pytest.raises(Unanswered, match="more than max_length=3"):
        own_task(giving, metric, n=20, max_length=3)


def test_the_null_of_s_inhibition_leaves_out_prompts_without_another_word(giving) -> None:
    from interp.circuits.named._inhibition import _other_words
    from interp.circuits.tasks import make_contrast

    task = make_contrast(giving, "ioi", n=8, seed=0)
    versions, alone = _other_words(giving, task, 0)
    assert alone == ()
    for ids, other, at in zip(task.clean.ids, versions, task.roles, strict=True):
        assert other is not None
        assert other != ids
        assert all(other[place] == ids[place] for place in at.values())
    empty = speller(things=False)
    other = interp.load(giving.module, tokenizer=empty, name="wordless")
    versions, alone = _other_words(other, task, 0)
    assert versions == [None] * 8
    assert alone == tuple(range(8))


def whole_words(words: list[str], pattern: str = r"\n+| ?[^\s.:]+:?| ?[.]") -> Any:
    """A tokenizer of the given pieces; other words are `<unk>`."""
    ids = {"<s>": 0, "<unk>": 1} | {w: i + 2 for i, w in enumerate(dict.fromkeys(words))}
    made = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    made.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", bos_token="<s>")


@pytest.fixture(scope="module")
def years_model() -> interp.Model:
    """A head that reads the year of two digits and raises all later ones."""
    tokenizer = speller(begin=True)
    made = Handmade(tokenizer, {"year": 100, "out": 100, "unread": 100}, layers=2)
    for y in range(100):
        token = tokenizer.convert_tokens_to_ids(f"{y:02d}")
        made.embedding[token, made.at["year"].start + y] = 1
        made.unembedding[token, made.at["out"].start + y] = 1
    reads = [made.rest(), (MATCH, made.eye("one"), made.total("year"))]
    later = 2 * torch.ones(100, 100).triu(1)
    made.head(1, 1, reads, [(made.eye("year"), later @ made.eye("out"))])
    made.head(1, 2, reads, [(made.eye("year"), later @ made.eye("unread"))])
    return made.build("years")


def test_a_planted_greater_than_head_is_found(years_model) -> None:
    found_by_rule(years_model, "greater_than", {"L1H1"}, "L1H2")


@pytest.fixture(scope="module")
def capitals_model() -> interp.Model:
    """One head writes the capital that it remembers, another, more strongly, the one given."""
    both = [*facts.CAPITALS, *facts.CAPITALS.values()]
    text = " The They said that the capital of is So In this story, Here Now We know the"
    words = [f" {w}" for w in [*both, *text.replace(",", "").split()]]
    tokenizer = whole_words([*words, "The", "They", "In", "Now", "We", "."], r"[.,]| ?[^\s.,]+")
    n = len(facts.CAPITALS)
    spaces = {"country": n, "capital": n, "about": n, "asked": n, "out": n, "unread": n}
    made = Handmade(tokenizer, spaces, layers=2)
    for i, (country, capital) in enumerate(facts.CAPITALS.items()):
        for word, space in ((country, "country"), (capital, "capital")):
            made.embedding[
                tokenizer.convert_tokens_to_ids(f" {word}"), made.at[space].start + i
            ] = 1
        token = tokenizer.convert_tokens_to_ids(f" {capital}")
        made.unembedding[token, made.at["out"].start + i] = 1
    country = made.eye("country")
    made.head(0, 0, [made.earlier(2)], [(country, made.eye("about"))])
    made.head(0, 1, [made.earlier(1)], [(country, made.eye("asked"))])
    made.head(0, 2, [made.earlier(1)], [(country, 4 * made.eye("out"))])
    given = [made.rest(), (MATCH, made.eye("asked"), made.eye("about"))]
    made.head(1, 0, given, [(made.eye("capital"), 10 * made.eye("out"))])
    made.head(1, 3, given, [(made.eye("capital"), 10 * made.eye("unread"))])
    return made.build("capitals")


def test_planted_heads_of_context_and_of_memory_are_told_apart(capitals_model) -> None:
    found_by_rule(capitals_model, "context_copying", {"L1H0"}, "L1H3")
    found_by_rule(capitals_model, "memory_recall", {"L0H2"}, "L1H3")


def test_the_planted_refusal_head_is_found() -> None:
    model = interp.load("planted:refusal")
    from interp.planted import build

    [(layer, head)] = build("refusal").roles["refusal"]
    other = next(h for h in range(4) if h != head)
    found_by_rule(model, "refusal_writer", {f"L{layer}H{head}"}, f"L{layer}H{other}")


@pytest.fixture(scope="module")
def following_model() -> interp.Model:
    """Pairs of examples are recognised, and a head carries their function to the question."""
    words = sorted({w for pairs in FUNCTIONS.values() for pair in pairs for w in pair})
    tokenizer = whole_words(["Q:", "A:", "\n", "\n\n", *(f" {w}" for w in words)])
    n, functions = len(words), list(FUNCTIONS)
    spaces = {
        "word": n,
        "before": n,
        "asked": n,
        "shown": len(functions),
        "wanted": len(functions),
        "unread": len(functions),
        "answer": 1,
        "out": n,
    }
    made = Handmade(tokenizer, spaces, layers=2, context=48)
    for i, word in enumerate(words):
        token = tokenizer.convert_tokens_to_ids(f" {word}")
        made.embedding[token, made.at["word"].start + i] = 1
        made.unembedding[token, made.at["out"].start + i] = 1
    made.embedding[tokenizer.convert_tokens_to_ids("A:"), made.at["answer"]] = 1
    made.head(0, 0, [made.earlier(3)], [(made.eye("word"), made.eye("before"))])
    made.head(0, 1, [made.earlier(2)], [(made.eye("word"), made.eye("asked"))])
    reads = [made.rest(), (MATCH, made.eye("answer"), made.total("shown"))]
    made.head(1, 2, reads, [(made.eye("shown"), made.eye("wanted"))])
    made.head(1, 3, reads, [(made.eye("shown"), made.eye("unread"))])
    for f, name in enumerate(functions):
        for x, y in FUNCTIONS[name]:
            a, b = words.index(x), words.index(y)
            made.neuron(0, made.eye("before")[a] + made.eye("word")[b], -1, made.eye("shown")[f])
            made.neuron(
                1, made.eye("asked")[a] + made.eye("wanted")[f], -1, 12 * made.eye("out")[b]
            )
    return made.build("following")


@pytest.mark.slow
def test_a_planted_function_vector_head_is_found_and_its_vector_works(following_model) -> None:
    found_by_rule(following_model, "function_vector", {"L1H2"}, "L1H3", prompts=6)
    vector = find_function_vector(following_model, "plural", top=1, n=6)
    assert [str(h) for h in vector.heads] == ["L1H2"]
    for kind, (without, with_it) in vector.evaluate(following_model, n=6).items():
        assert without < 0.1, kind
        assert with_it > 0.9, kind


@pytest.fixture(scope="module")
def reading_model() -> interp.Model:
    """On natural text: a head on the token before, one on equal tokens, and bystanders."""
    text = (folder("data") / "prompts.txt").read_text(encoding="utf-8")
    pieces = [f" {w}" for w in text.split()]
    common = sorted(set(pieces), key=lambda w: (-pieces.count(w), w))[:60]
    tokenizer = whole_words(common, r" ?[^\s]+")
    made = Handmade(tokenizer, {"token": len(tokenizer), "unread": 4}, layers=1, context=64)
    made.embedding[:, made.at["token"]] = torch.eye(len(tokenizer))
    made.unembedding[1, made.at["one"]] = 3  # words without a token of their own are frequent
    token, position = made.eye("token"), made.eye("position")
    away = (-2 * MATCH, position, position)
    nothing = [(made.eye("unread"), made.eye("unread"))]
    made.head(0, 0, [made.earlier(1)], nothing)
    made.head(0, 1, [made.rest(), (MATCH, token, token), away], nothing)
    made.head(0, 2, [made.rest()], nothing)
    return made.build("reading")


def test_planted_heads_on_text_are_found(reading_model) -> None:
    found_by_rule(reading_model, "previous_token_text", {"L0H0"}, "L0H2")
    found_by_rule(reading_model, "duplicate_token_text", {"L0H1"}, "L0H2")


@pytest.fixture(scope="module")
def noun_reader(tmp_path_factory) -> tuple[interp.Model, str]:
    """Sentences whose nouns are at several distances from their article, and a head that links."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(40):
        words: list[tuple[str, int, str]] = []
        for role, verb in (("nsubj", True), ("obj", False)):
            adjectives = list(rng.choice(["big", "red", "old"], int(rng.integers(0, 4))))
            noun = len(words) + len(adjectives) + 2
            words.append((str(rng.choice(["the", "a"])), noun, "det"))
            words += [(str(x), noun, "amod") for x in adjectives]
            words.append((str(rng.choice(["dog", "cat", "man"])), 0, role))
            if verb:
                words.append(("saw", 0, "root"))
        root = next(i for i, w in enumerate(words) if w[2] == "root") + 1
        rows = [
            f"{i}\t{w}\t_\t_\t_\t_\t{(0 if r == 'root' else h or root)}\t{r}\t_\t_"
            for i, (w, h, r) in enumerate(words, 1)
        ]
        lines.append("\n".join([f"# text = {' '.join(w for w, *_ in words)}", *rows, ""]))
    path = tmp_path_factory.mktemp("trees") / "nouns.conllu"
    path.write_text("\n".join(lines) + "\n")
    every = ["the", "a", "big", "red", "old", "dog", "cat", "man", "saw"]
    tokenizer = whole_words([*every, *(f" {w}" for w in every)], r" ?[^\s]+")
    made = Handmade(tokenizer, {"article": 1, "noun": 1, "unread": 4}, layers=1)
    for word in every:
        for spelled in (word, f" {word}"):
            token = tokenizer.convert_tokens_to_ids(spelled)
            made.embedding[token, made.at["article"]] = float(word in ("the", "a"))
            made.embedding[token, made.at["noun"]] = float(word in ("dog", "cat", "man"))
            made.unembedding[token, made.at["one"]] = float(spelled != word)
    ramp = torch.arange(40.0)[None] @ made.eye("position")
    nearest = [(2 * MATCH, made.eye("noun"), made.eye("article")), (1.0, made.eye("one"), ramp)]
    nothing = [(made.eye("unread"), made.eye("unread"))]
    made.head(0, 1, nearest, nothing)
    made.head(0, 2, [made.rest()], nothing)
    return made.build("nouns"), str(path)


def test_a_planted_syntactic_head_is_found(noun_reader) -> None:
    model, path = noun_reader
    found = METRICS.load("dependency_relation").bind(file=path, relation="det", sentences=40)
    trials = found.experiment(model, 0, lambda *x: None)
    assert trials.null is not None, trials.headline
    values = trials.values[model.sites[0]].mean(0)
    null = float(trials.null[model.sites[0]].mean())
    assert int(values.argmax()) == 1
    assert float(values[1]) == 1
    assert null < 0.6
    assert float(values[[0, 2, 3]].max()) < 0.6


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["context_copying", "memory_recall", "greater_than"])
def test_words_that_a_tokenizer_splits_are_named(name, reading_model) -> None:
    found = METRICS.load(name).bind().experiment(reading_model, 0, lambda *x: None)
    assert "no scores: the task" in found.headline
    assert "split" in found.headline
    assert all(x.isnan().all() for x in found.values.values())


def test_functions_whose_words_are_split_are_named(reading_model) -> None:
    found = METRICS.load("function_vector").bind().experiment(reading_model, 0, lambda *x: None)
    assert "the tokenizer splits the words of all functions but" in found.headline


def test_a_model_without_a_stated_refusal_says_so(giving) -> None:
    found = METRICS.load("refusal_writer").bind().experiment(giving, 0, lambda *x: None)
    assert "states no marker_token_id and refusal_token_ids" in found.headline


def test_a_model_that_cannot_do_a_task_is_not_checked_on_it(giving) -> None:
    found = confirm(giving, {"name_mover": ["L2H0"], "greater_than": ["L2H0"]}, n_random=3)
    assert found.of("name_mover", "own").task == "ioi"
    assert "no better than uniform guessing" not in found.notes.get("name_mover", "")
    flat = confirm(giving, {"context_copying": ["L2H0"]}, n_random=3)
    assert [c.purpose for c in flat] == ["plain"]
    assert "not checked on its own task" in flat.notes["context_copying"]
