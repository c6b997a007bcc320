"""Finished coalitions are found again, by the same game only, also after a kill or damage."""

from __future__ import annotations

import pytest
import torch
from core import kept

from interp.causal import custom, leave_one_out, loss
from interp.causal.game.game import Game
from interp.core.errors import DamagedKept, StoreError

PROMPTS = [[1, 5, 9, 4, 5, 9], [1, 7, 3, 8, 7, 3], [1, 2, 6, 2, 6]]


def rows(game, n=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randperm(2 ** len(game) - 1, generator=generator)[:n]  # no two alike
    return (numbers[:, None] >> torch.arange(len(game)) & 1).double()


def known(game, n=None):
    """How many of these coalitions the game's ledger holds."""
    return int(game.ledger.find(rows(game) if n is None else n)[0].sum())


def counted(game, monkeypatch):
    """How many coalitions are run from here on."""
    ran = []
    evaluate = game.evaluate

    def count(number, pack, table):
        ran.extend(pack.rows if number == 0 else ())
        return evaluate(number, pack, table)

    monkeypatch.setattr(game, "evaluate", count)
    return ran


def test_a_second_game_runs_only_what_is_new(planted_induction, tmp_path, monkeypatch):
    task = loss(planted_induction, PROMPTS)
    first = Game(planted_induction, task, resume=tmp_path)
    table = rows(first)
    values = first.values(table)
    torch.testing.assert_close(
        values, Game(planted_induction, task).values(table), rtol=1e-6, atol=1e-6
    )
    second = Game(planted_induction, task, resume=tmp_path)
    ran = counted(second, monkeypatch)
    assert torch.equal(second.values(table), values)
    assert not ran
    more = torch.cat([rows(second, 3, seed=1), table])
    told = []
    again = second.values(more, progress=lambda what, done, total: told.append((done, total)))
    assert torch.equal(again[3:], values)
    assert len(ran) == 3
    assert told[-1] == (15, 15)


def test_an_interrupted_run_keeps_what_it_finished(planted_induction, tmp_path, monkeypatch):
    task = loss(planted_induction, PROMPTS)
    game = Game(planted_induction, task, resume=tmp_path, fold=False)
    table = rows(game)
    monkeypatch.setattr(game, "_at_once", lambda: 4)
    evaluate, runs = game.evaluate, []

    def stop(number, pack, part):
        runs.append(number)
        if len(runs) == 10 * len(game.batches):
            raise KeyboardInterrupt
        return evaluate(number, pack, part)

    monkeypatch.setattr(game, "evaluate", stop)
    with pytest.raises(KeyboardInterrupt):
        game.values(table)
    resumed = Game(planted_induction, task, resume=tmp_path, fold=False)
    assert known(resumed, table) == 8
    ran = counted(resumed, monkeypatch)
    assert torch.equal(
        resumed.values(table), Game(planted_induction, task, fold=False).values(table)
    )
    assert len(ran) == 4


@pytest.mark.parametrize(
    "options", [{"kind": "mean-batch"}, {"players": "layers"}, {"without": [(0, 1)]}, {"seed": 3}]
)
def test_another_game_gets_nothing(planted_induction, tmp_path, options):
    task = loss(planted_induction, PROMPTS)
    Game(planted_induction, task, resume=tmp_path).values(torch.zeros(1, 8))
    assert known(Game(planted_induction, task, resume=tmp_path), torch.zeros(1, 8)) == 1
    other = Game(planted_induction, task, resume=tmp_path, **options)
    assert known(other, torch.zeros(1, len(other))) == 0
    fewer = Game(planted_induction, loss(planted_induction, PROMPTS[:2]), resume=tmp_path)
    assert known(fewer, torch.zeros(1, 8)) == 0


def test_two_functions_of_one_name_are_two_games(planted_induction, tmp_path):
    def task(scale):
        def read(logits, prompt):
            return scale * logits[0, 3]

        return custom(
            planted_induction, PROMPTS, read, name="own", unit="logits", higher_is_better=True
        )

    Game(planted_induction, task(1.0), resume=tmp_path).values(torch.zeros(1, 8))
    assert known(Game(planted_induction, task(1.0), resume=tmp_path), torch.zeros(1, 8)) == 1
    assert known(Game(planted_induction, task(2.0), resume=tmp_path), torch.zeros(1, 8)) == 0


def test_a_cut_off_or_damaged_record_is_run_again(planted_induction, tmp_path):
    task = loss(planted_induction, PROMPTS)
    game = Game(planted_induction, task, resume=tmp_path)
    table = rows(game)
    values = game.values(table)
    path = game.ledger.steps.path
    kept.damage_one(tmp_path)
    with pytest.warns(DamagedKept, match="is damaged in a finished step"):
        assert known(game) == len(table) - 1
    with pytest.warns(DamagedKept, match="is damaged in a finished step"):
        torch.testing.assert_close(game.values(table), values, rtol=1e-6, atol=1e-6)
    assert known(game) == len(table)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.warns(DamagedKept, match="it is set aside as"):
        assert known(Game(planted_induction, task, resume=tmp_path)) == 0
    path.write_bytes(b"something else, and not a database at all")
    with pytest.warns(DamagedKept, match="it is set aside as"):
        assert known(Game(planted_induction, task, resume=tmp_path)) == 0
    aside = path.with_name(f"{path.name}.damaged-2")
    assert aside.read_bytes() == b"something else, and not a database at all"


def test_a_folder_that_cannot_be_written_is_one_clear_error(planted_induction, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is a file, not a folder"):
        Game(planted_induction, loss(planted_induction, PROMPTS), resume=tmp_path / "file")


def test_scores_with_their_null_resume(planted_induction, tmp_path):
    task = loss(planted_induction, PROMPTS)
    first = leave_one_out(planted_induction, task, resume=tmp_path)
    finished = sorted(path.name for path in tmp_path.iterdir())
    assert len(finished) == 2  # the model, and random weights
    assert all(".coalitions." in name for name in finished)
    again = leave_one_out(planted_induction, task, resume=tmp_path)
    assert again.table.to_pandas().equals(first.table.to_pandas())
    assert sorted(path.name for path in tmp_path.iterdir()) == finished
