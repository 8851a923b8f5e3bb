"""A gate on vectors whose experts predict the clusters of neighbours, trained by EM."""

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .optimizers import AdamW

WIDTH, EMBEDDING_DIM = 512, 128
LABEL_EPOCHS = 10  # the gate first learns the labels that EM starts from
LABEL_LR, LR, WEIGHT_DECAY = 1e-3, 1e-4, 1e-4  # parameters of AdamW
BATCH_SIZE, LEAST_STEPS = 256, 8  # rows of a step, steps of an epoch
TEACHER_MOMENTUM, SHARES_MOMENTUM = 0.996, 0.9
LEAST_SHARE = 1e-12  # least share of a cluster in a logarithm


class NeighborGate(nn.Module):
    """The gate: embeddings of one hidden layer, compared with a prototype a cluster."""

    def __init__(self, n_features: int, n_clusters: int, kappa: float):
        super().__init__()
        self.hidden = nn.Linear(n_features, WIDTH)
        self.output = nn.Linear(WIDTH, EMBEDDING_DIM)
        directions = F.normalize(torch.randn(n_clusters, EMBEDDING_DIM))
        self.prototypes = nn.Parameter(directions)
        self.kappa = kappa

    def forward(self, rows: Tensor) -> Tensor:
        """Log pi_k of each row, (B, A) -> (B, K)."""
        embeddings = F.normalize(self.output(self.hidden(rows).relu()))
        cosines = embeddings @ F.normalize(self.prototypes).T
        return F.log_softmax(cosines / self.kappa, dim=1)


def evidence(x: Tensor, y: Tensor, log_shares: Tensor) -> Tensor:
    """Log p(y | x) - log p(y) of pairs: log sum_k pi_k(x) pi_k(y) / p_k, (B,).

    From log pi (B, K) of both, and log p_k (K,), where p_k is the mean of pi_k.
    """
    return torch.logsumexp(x + y - log_shares, dim=1)


def train(
    gate: NeighborGate,
    rows: Tensor,
    labels: Tensor,
    nearest: Tensor,
    n_epochs: int,
    generator: torch.Generator,
    epoch_done: Callable[[], None],
) -> tuple[NeighborGate, float]:
    """Train a gate to predict labels, then by EM on pairs of neighbours.

    The gradient of the evidence is that of the ELBO at the posterior q of a pair, so
    that a step of SGD is an E-step and a part of an M-step. The neighbour's pi is that
    of a teacher, the moving average of the gate.

    Parameters
    ----------
    gate : NeighborGate
        With random weights; it is changed.
    rows : float32 Tensor of shape (N, A)
    labels : int64 Tensor of shape (N,)
    nearest : int64 Tensor of shape (N, M)
        Each row's neighbours, one of which is drawn in each epoch.
    n_epochs : int
        Of EM.
    generator : torch.Generator
        Of the order of rows, and of neighbours.
    epoch_done : callable
        Called after each epoch, also of those that learn the labels.

    Returns
    -------
    teacher : NeighborGate
        Without gradients.
    elbo : float
        Mean over the pairs of the last epoch, in nats.
    """
    optimizer = _optimizer(gate, LABEL_LR)
    for _ in range(LABEL_EPOCHS):
        for batch in _batches(len(rows), generator):
            _step(optimizer, F.nll_loss(gate(rows[batch]), labels[batch]))
        epoch_done()

    teacher = copy.deepcopy(gate).requires_grad_(False)
    averages = [*zip(teacher.parameters(), gate.parameters(), strict=True)]
    optimizer = _optimizer(gate, LR)
    counts = torch.bincount(labels, minlength=len(gate.prototypes))
    shares = counts.float() / len(labels)
    for _ in range(n_epochs):
        total = torch.zeros((), dtype=torch.float64)
        for batch in _batches(len(rows), generator):
            columns = torch.randint(nearest.shape[1], batch.shape, generator=generator)
            pairs = rows[torch.cat([batch, nearest[batch, columns]])]
            target = teacher(pairs)
            shares.lerp_(target.exp().mean(dim=0), 1 - SHARES_MOMENTUM)
            log_shares = shares.clamp(min=LEAST_SHARE).log()
            (x, y), (x_target, y_target) = gate(pairs).chunk(2), target.chunk(2)
            both = evidence(x, y_target, log_shares), evidence(y, x_target, log_shares)
            elbo = torch.cat(both).mean()
            _step(optimizer, -elbo)
            total += elbo.detach() * len(batch)
            with torch.no_grad():
                for average, value in averages:
                    average.lerp_(value, 1 - TEACHER_MOMENTUM)
        epoch_done()
    return teacher, total.item() / len(rows)


def _optimizer(gate, lr):
    parameters = gate.parameters()
    return AdamW(parameters, lr=lr, weight_decay=WEIGHT_DECAY, fused=True)


def _batches(n: int, generator):
    """Random batches of one epoch, of equal size to within one."""
    size = max(1, min(BATCH_SIZE, n // LEAST_STEPS))
    order = torch.randperm(n, generator=generator)
    return order.tensor_split(math.ceil(n / size))


def _step(optimizer, loss) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
