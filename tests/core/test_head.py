import pickle

import numpy as np
import pytest

from interp.core.errors import OptionError
from interp.core.head import Head


@pytest.mark.parametrize(
    "written",
    [
        "L5H12",
        "l5h12",
        "5.12",
        "a5.h12",
        "A5.H12",
        "(5, 12)",
        "(5,12)",
        " L5H12 ",
        (5, 12),
        [5, 12],
    ],
)
def test_reads_every_spelling(written):
    assert Head.parse(written) == Head(5, 12) == (5, 12)


def test_prints_what_it_reads():
    head = Head(np.int64(5), 1)
    assert (str(head), repr([head]), f"{head:>6}") == ("L5H1", "[L5H1]", "  L5H1")
    assert Head.parse(str(head)) == head
    assert type(head.layer) is int
    assert sorted({Head(10, 0), Head(2, 1), Head(2, 0)}) == [(2, 0), (2, 1), (10, 0)]
    assert pickle.loads(pickle.dumps(head)) == head


@pytest.mark.parametrize(
    "wrong",
    ["", "5", "L5", "H5L1", "L5H1x", "5.1.2", "L-1H2", "L5H\u0661", 5.1, 51, None, (1, 2, 3)],
)
def test_refuses_what_is_no_head(wrong):
    with pytest.raises(OptionError, match=r"cannot read .* as a head; write L5H1"):
        Head.parse(wrong)


@pytest.mark.parametrize("wrong", [(-1, 0), (0, -1), (0.5, 1), (True, 1), ("1", 2)])
def test_refuses_numbers_that_count_nothing(wrong):
    with pytest.raises(OptionError, match="whole number of at least 0"):
        Head(*wrong)


def test_frozen():
    with pytest.raises(AttributeError):
        Head(1, 2).layer = 3


def test_heads_of_different_stacks_are_different() -> None:
    plain, inside, across = Head(0, 1), Head(0, 1, "decoder"), Head(0, 1, "cross")
    assert inside != across
    assert plain == inside == (0, 1)
    assert len({inside, across}) == 2
    assert Head.parse(across).stack == "cross"
    assert pickle.loads(pickle.dumps(across)).stack == "cross"
    with pytest.raises(AttributeError):
        across.stack = "decoder"  # type: ignore[misc]
