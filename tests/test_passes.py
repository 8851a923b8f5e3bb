"""One parameter trained alone."""

import torch
from torch import nn

from sk_mice._engine import passes
from sk_mice._engine.passes import until_settled

TARGETS = torch.eye(2, 3)
SGD = {"lr": 0.5, "momentum": 0.5, "weight_decay": 0.0}


def distance(mu):
    return 1 - (nn.functional.normalize(mu, dim=1) * TARGETS).sum(1).mean()


def start():
    return nn.Parameter(torch.tensor([[1.0, 2.0, 3.0], [-1.0, 1.0, 2.0]]))


def test_it_stops_where_the_parameter_has_settled():
    mu = start()
    seen = []

    def loss(batch):
        seen.append(batch)
        return distance(mu)

    n_passes = until_settled(mu, range(30), loss, **SGD)
    assert 1 < n_passes < passes.MAX_PASSES
    assert seen == n_passes * list(range(30))
    torch.testing.assert_close(
        nn.functional.normalize(mu.detach(), dim=1), TARGETS, atol=0.1, rtol=0
    )
    assert mu.grad is None


def test_it_stops_where_the_objective_has_settled():
    # Rows move on without end, and to no effect.
    mu = start()
    turn = torch.tensor([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])

    def loss(batch):
        push = (mu * (mu.detach() @ turn)).sum()
        return push - push.detach()

    assert until_settled(mu, range(3), loss, **SGD) == 2


def test_it_stops_after_twenty_passes():
    mu = start()
    n_calls = 0

    def loss(batch):
        nonlocal n_calls
        n_calls += 1
        return (-1) ** n_calls * n_calls + distance(mu) * n_calls

    options = SGD | {"lr": 10.0, "momentum": 0.99}
    assert until_settled(mu, range(1), loss, **options) == passes.MAX_PASSES == 20


def test_nothing_else_gets_a_gradient():
    mu, other = start(), nn.Parameter(torch.ones(()))
    until_settled(mu, range(2), lambda batch: other * distance(mu), **SGD)
    assert other.grad is None
    assert other == 1
