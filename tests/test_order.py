"""The order of an epoch for X in a file."""

import torch

from sk_mice._engine.order import blocks_of, windows


def order(seed, n=1003, block=10, window=200):
    return windows(n, block, window, torch.Generator().manual_seed(seed))


def test_an_epoch_holds_every_row_once():
    rows = torch.cat(order(0)).sort().values
    assert torch.equal(rows, torch.arange(1003))


def test_order_follows_the_generator():
    assert torch.equal(torch.cat(order(0)), torch.cat(order(0)))
    assert not torch.equal(torch.cat(order(0)), torch.cat(order(1)))


def test_a_window_is_read_in_blocks():
    parts = order(0)
    assert [len(part) for part in parts] == [200] * 5 + [3]
    for part in parts[:-1]:
        runs = blocks_of(part)
        assert len(runs) <= 200 / 10 + 2  # two may be cut off by the window's ends
        assert sum(stop - start for start, stop in runs) == 200


def test_rows_of_a_window_and_of_an_epoch_are_shuffled():
    first = order(0)[0].double()
    assert first.std() > 200  # from all over X, where adjacent ones have 58
    steps = first.diff().abs()
    assert (steps <= 10).double().mean() < 0.15  # few of a block in sequence


def test_blocks_begin_elsewhere_in_each_epoch():
    starts = {blocks_of(order(seed)[0])[1][0] % 10 for seed in range(20)}
    assert len(starts) > 5


def test_runs_of_rows():
    assert blocks_of(torch.tensor([7, 3, 4, 9, 8, 2])) == [(2, 5), (7, 10)]
    assert blocks_of(torch.tensor([5])) == [(5, 6)]
