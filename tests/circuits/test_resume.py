"""A search that is broken off goes on where it was, and gives what it would have given."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
import torch
from circuits.contrasts import induction_pairs

import interp
from interp.circuits.contrast import ContrastTask
from interp.circuits.declaration import Found, discovery
from interp.circuits.edge_evaluation import evaluate_edges
from interp.circuits.edge_forward import EdgeForward
from interp.circuits.evaluation import evaluate_circuit
from interp.circuits.find import find_circuit, score_nodes
from interp.circuits.methods import _exact
from interp.circuits.residual_graph import ResidualGraph
from interp.core.errors import OptionError
from interp.core.registry import CIRCUIT_METHODS
from interp.model.model import Model

pytestmark = pytest.mark.usefixtures("every_step_kept")

SMALL = {"codes": 16, "epochs": 3, "repeats": 4, "permutations": 3, "examples": 4}
CASES = [
    ("attribution_patching", "head", {}),
    ("attribution_patching", "edge", {"qk_fix": True}),
    ("attribution_patching", "head", {"grad_drop": True}),
    ("integrated_patching", "head", {"path": "activations", "steps": 2}),
    ("integrated_patching", "edge", {"steps": 2}),
    ("gim_patching", "edge", {}),
    ("exact_patching", "head", {"denoise": True}),
    ("exact_patching", "edge", {"norm": "freeze"}),
    ("screen_verify", "head", {"candidates": 4, "primaries": 1}),
    ("svd_trace", "edge", {}),
    ("codes", "edge", SMALL),
]


@pytest.fixture(scope="module")
def two_length_task(planted_induction):
    """Prompts of two lengths, so two batches."""
    return induction_pairs(planted_induction, 6, previous_token=["L0H3"], induction=["L1H0"])


class Counter:
    """Counts forwards of models, and trainings of autoencoders; breaks off at one of them."""

    def __init__(self, at: int | None = None) -> None:
        self.n, self.at = 0, at

    def __enter__(self):
        def counting(function):
            def call(*args, **kwargs):
                self.n += 1
                if self.n == self.at:
                    raise KeyboardInterrupt
                return function(*args, **kwargs)

            return call

        train = CIRCUIT_METHODS.load("codes").function.__globals__
        self.patches = [
            patch.object(Model, "run", counting(Model.run)),
            patch.dict(train, train_autoencoder=counting(train["train_autoencoder"])),
        ]
        for p in self.patches:
            p.start()
        return self

    def __exit__(self, *error) -> None:
        for p in self.patches:
            p.stop()


def same(a: Found, b: Found) -> None:
    """To the last bit, with all that is told beside the scores."""
    for field in fields(Found):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if isinstance(x, np.ndarray):
            assert x.dtype == y.dtype
            assert x.tobytes() == y.tobytes(), field.name
        else:
            assert repr(x) == repr(y), field.name


@pytest.mark.parametrize(("method", "level", "options"), CASES, ids=str)
def test_a_broken_off_search_goes_on(
    planted_induction, two_length_task, tmp_path, method, level, options
) -> None:
    # the first search also runs what is found out once per model, which is kept with the model
    whole = score_nodes(planted_induction, two_length_task, method, level, **options)
    with Counter() as counter:
        same(whole, score_nodes(planted_induction, two_length_task, method, level, **options))
    in_all = counter.n
    for part in (0.4, 0.95):
        folder, at = tmp_path / str(part), max(2, round(part * in_all))
        with pytest.raises(KeyboardInterrupt), Counter(at):
            score_nodes(planted_induction, two_length_task, method, level, resume=folder, **options)
        with Counter() as counter:
            same(
                whole,
                score_nodes(
                    planted_induction, two_length_task, method, level, resume=folder, **options
                ),
            )
        assert counter.n <= in_all
    assert counter.n < in_all  # something was finished, and is not made again
    with Counter() as counter:
        same(
            whole,
            score_nodes(
                planted_induction, two_length_task, method, level, resume=folder, **options
            ),
        )
    assert counter.n == 0


def test_the_longest_search_loses_a_step_at_most(
    planted_induction, two_length_task, tmp_path
) -> None:
    """Paths, one by one: what is run twice is one step, and three forwards that start a batch."""
    with Counter() as counter:
        find_circuit(planted_induction, two_length_task, "exact_patching", "edge")
    in_all = counter.n
    for at in (in_all // 3, in_all - 1):
        with pytest.raises(KeyboardInterrupt), Counter(at):
            find_circuit(
                planted_induction,
                two_length_task,
                "exact_patching",
                "edge",
                resume=tmp_path / str(at),
            )
        with Counter() as counter:
            find_circuit(
                planted_induction,
                two_length_task,
                "exact_patching",
                "edge",
                resume=tmp_path / str(at),
            )
        assert counter.n <= in_all - (at - 1) + 3


def test_forwards_do_not_depend_on_those_before(planted_induction, two_length_task) -> None:
    """A layer that is put back is put back in the first forward too: resuming may begin there."""
    (batch, _) = two_length_task.batches()
    graph = ResidualGraph.of(planted_induction)
    edges = EdgeForward(graph, batch.clean, batch.corrupted)
    mask = graph.full() - graph.mask([("embed", "L1H0.v")])
    masks = torch.stack([mask, graph.full() - graph.mask([("embed", "L1H1.v")])])
    block = planted_induction.module.get_submodule(graph.layers[0].block)
    own = block.forward

    def forward(x, *args, **kwargs):
        return own(x, *args, **kwargs) + 0.01 * len(x)  # as products of other shapes round

    with patch.object(block, "forward", forward):
        for some in (masks, torch.zeros_like(graph.full())):  # all blocks from the other run
            first, second = edges.run(some), edges.run(some)
            assert torch.equal(first, second)
            edges = EdgeForward(graph, batch.clean, batch.corrupted)


def test_norms_that_are_held_are_counted_once(planted_induction, two_length_task) -> None:
    exact, held = (
        score_nodes(
            planted_induction, two_length_task, "exact_patching", "edge", norm=norm
        ).forwards
        for norm in ("exact", "freeze")
    )
    assert held - exact == pytest.approx(2)


def test_evaluation_of_edges_goes_on(planted_induction, two_length_task, tmp_path) -> None:
    circuit = find_circuit(planted_induction, two_length_task, "gim_patching", "edge")
    with Counter() as counter:
        whole = evaluate_edges(planted_induction, circuit, two_length_task)
    in_all = counter.n
    with pytest.raises(KeyboardInterrupt), Counter(40):
        evaluate_edges(planted_induction, circuit, two_length_task, resume=tmp_path)
    with Counter() as counter:
        again = evaluate_edges(planted_induction, circuit, two_length_task, resume=tmp_path)
    assert counter.n <= in_all - 39 + 3
    for name in ("per_prompt", "full", "empty", "random"):
        assert getattr(whole, name).tobytes() == getattr(again, name).tobytes()
    with Counter() as counter:
        evaluate_circuit(planted_induction, circuit, two_length_task, resume=tmp_path / "heads")
        heads = counter.n
        evaluate_edges(planted_induction, circuit, two_length_task, resume=tmp_path)
    assert counter.n == heads
    with Counter() as counter:  # another order is another evaluation
        evaluate_edges(planted_induction, circuit, two_length_task, seed=1, resume=tmp_path)
    assert counter.n == in_all


def test_nothing_else_gets_these_values(planted_induction, two_length_task, tmp_path) -> None:
    """Another model, method, option, level, prompt, side, role, reading; and the same does."""

    def runs(model: Model, task: ContrastTask, *args, **options) -> int:
        with Counter() as counter:
            score_nodes(model, task, *args, resume=tmp_path, **options)
        return counter.n

    gim = runs(planted_induction, two_length_task, "gim_patching")
    assert gim > 0
    assert runs(planted_induction, two_length_task, "gim_patching") == 0
    assert runs(interp.load("planted:induction"), two_length_task, "gim_patching") == 0
    assert runs(planted_induction, two_length_task, "gim_patching", "edge") > 0
    assert runs(planted_induction, two_length_task, "attribution_patching") > 0
    assert runs(planted_induction, two_length_task, "attribution_patching", at="corrupted") > 0
    assert runs(interp.load("planted:bystander"), two_length_task, "gim_patching") > 0
    assert (
        runs(planted_induction, induction_pairs(planted_induction, 6, seed=1), "gim_patching") > 0
    )
    assert runs(planted_induction, two_length_task.some([0, 1, 2, 3, 5, 4]), "gim_patching") > 0
    assert runs(planted_induction, two_length_task.some([0, 1, 2, 3, 4]), "gim_patching") > 0
    assert (
        runs(planted_induction, two_length_task.known({"induction": ("L1H1",)}), "gim_patching") > 0
    )
    other = ContrastTask(
        two_length_task.task.with_corrupted(
            [(*ids[:-2], 9, ids[-1]) for ids in two_length_task.corrupted.ids], planted_induction
        ),
        two_length_task.roles,
    )
    assert runs(planted_induction, other, "gim_patching") > 0
    roles = ContrastTask(
        two_length_task.task,
        tuple({**r, "end": 0} for r in two_length_task.roles),
        truth=two_length_task.truth,
    )
    assert runs(planted_induction, roles, "gim_patching") > 0
    assert (
        runs(
            planted_induction,
            ContrastTask(two_length_task.task, two_length_task.roles, truth=two_length_task.truth),
            "gim_patching",
        )
        == 0
    )


def test_tasks_that_differ_in_a_function_only_are_told_apart(
    planted_induction, two_length_task, tmp_path
) -> None:
    from dataclasses import replace

    def twice(logits, rows, clean):
        return 2 * two_length_task.task.read_rows(logits, rows, clean)

    other = replace(two_length_task, task=replace(two_length_task.task, read_rows=twice))
    assert other.about() == two_length_task.about()
    one = score_nodes(planted_induction, two_length_task, "gim_patching", resume=tmp_path)
    two = score_nodes(planted_induction, other, "gim_patching", resume=tmp_path)
    np.testing.assert_allclose(two.per_prompt, 2 * one.per_prompt, rtol=1e-6)
    assert np.abs(one.per_prompt).max() > 1


def test_weights_changed_in_place_are_another_model(two_length_task, tmp_path) -> None:
    own = interp.load("planted:induction")
    before = score_nodes(own, two_length_task, "gim_patching", resume=tmp_path)
    with torch.no_grad():
        own.module.state_dict()["lm_head.weight"].mul_(0.5)
    after = score_nodes(own, two_length_task, "gim_patching", resume=tmp_path)
    assert np.abs(after.per_prompt).max() < 0.9 * np.abs(before.per_prompt).max()


def test_a_method_in_a_file_of_its_own_needs_nothing_more(
    planted_induction, two_length_task, tmp_path
) -> None:
    """Finished, it is kept whole; its steps if it names some; and its text is part of it."""
    text = (
        "import numpy as np\n"
        "from interp.circuits.declaration import Found, discovery\n\n"
        "@discovery(levels=('head',))\n"
        "def own(model, task, level, *, power: int = 1) -> Found:\n"
        "    '''Heads by the size of what they write.'''\n"
        "    nodes = tuple(str(h) for h in model.heads())\n"
        "    clean, _ = task.values(model)\n"
        "    score = np.arange(len(nodes))[:, None] ** power * clean\n"
        "    return Found(nodes, score, 'size')\n"
    )
    path = tmp_path / "own.py"

    def runs(text: str, **options) -> int:
        path.write_text(text)
        place: dict = {"__name__": "own"}
        exec(compile(text, str(path), "exec"), place)
        with Counter() as counter:
            score_nodes(
                planted_induction,
                two_length_task,
                place["own"],
                resume=tmp_path / "kept",
                **options,
            )
        return counter.n

    first = runs(text)
    assert first > 0
    assert runs(text) == 0
    assert runs(text, power=2) == first
    assert runs(text.replace("** power", "* power")) == first
    assert runs(text) == 0


def test_two_methods_of_one_file_are_told_apart(
    planted_induction, two_length_task, tmp_path
) -> None:
    text = "import numpy as np\nfrom interp.circuits.declaration import Found, discovery\n\n"
    for name, score in (("one", 1.0), ("two", 2.0)):
        text += (
            "@discovery(levels=('head',))\n"
            f"def test_{name}(model, task, level) -> Found:\n"
            "    'Made up.'\n"
            f"    return Found(('L0H0',), np.full((1, 1), {score}), 'made up')\n\n"
        )
    path = tmp_path / "test_both.py"
    path.write_text(text)
    place: dict = {"__name__": "test_both"}
    exec(compile(text, str(path), "exec"), place)
    for name, score in (("one", 1.0), ("two", 2.0)):
        found = score_nodes(
            planted_induction, two_length_task, place[f"test_{name}"], resume=tmp_path
        )
        assert found.per_prompt.item() == score


def test_what_a_ledger_cannot_tell_apart_is_refused(
    planted_induction, two_length_task, tmp_path
) -> None:
    def by(heads: tuple[str, ...]):
        @discovery(levels=("head",))
        def test_ranking(model, task, level) -> Found:
            """Made up."""
            return Found(heads, np.ones((len(heads), 1)), "places")

        return test_ranking

    score_nodes(planted_induction, two_length_task, by(("L0H0",)))
    with pytest.raises(OptionError, match="is declared inside a function"):
        score_nodes(planted_induction, two_length_task, by(("L0H0",)), resume=tmp_path)
    with (
        pytest.raises(OptionError, match="heads are edited"),
        planted_induction.edited(interp.zero([(0, 3)])),
    ):
        score_nodes(planted_induction, two_length_task, "gim_patching", resume=tmp_path)
    with pytest.raises(OptionError, match="is not a whole number"):
        score_nodes(
            planted_induction, two_length_task, "integrated_patching", resume=tmp_path, steps=[5]
        )
    assert not list(tmp_path.glob("*.sqlite"))


def test_refusals_are_not_kept(planted_induction, tmp_path) -> None:
    noise = interp.load("planted:noise")
    task = induction_pairs(noise, 6)
    for _ in range(2):
        with pytest.raises(OptionError, match="does not do induction pairs"):
            score_nodes(noise, task, "gim_patching", resume=tmp_path)


@pytest.mark.parametrize(("method", "level", "options"), CASES, ids=str)
def test_progress_grows_to_the_end(
    planted_induction, two_length_task, monkeypatch, tmp_path, method, level, options
) -> None:
    """One count after another, none falls, all come to their end; where all is known, nothing."""
    monkeypatch.setattr(_exact, "MOST_TOKENS", 128)  # as in models that take longer
    for again in (False, True):
        told: dict[str, list[int]] = {}
        ends: dict[str, int] = {}

        def tell(what: str, done: int, total: int, told=told, ends=ends) -> None:
            told.setdefault(what, []).append(done)
            assert ends.setdefault(what, total) == total

        score_nodes(
            planted_induction,
            two_length_task,
            method,
            level,
            resume=tmp_path,
            progress=tell,
            **options,
        )
        assert bool(told) != again
        for what, done in told.items():
            assert done == sorted(done)
            assert done[0] == 0
            assert done[-1] == ends[what]
            jump = max(b - a for a, b in pairwise(done))
            assert jump <= max(1, 0.3 * ends[what]), what  # it is said more often than by batch


def test_names_may_be_written_with_hyphens(planted_induction, two_length_task) -> None:
    assert find_circuit(planted_induction, two_length_task, "svd-trace").method == "svd_trace"
