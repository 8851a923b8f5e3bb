"""TEMI and TURTLE, two clusterings of frozen features, small and as published.

TEMI: N. Adaloglou, F. Michels, H. Kalisch, M. Kollmann, "Exploring the Limits of Deep
Image Clustering using Pretrained Models", BMVC 2023. TURTLE: A. Gadetsky, Y. Jiang,
M. Brbic, "Let Go of Your Labels with Unsupervised Transfer", ICML 2024.

Numbers are those of the authors' commands for CIFAR-10: of TEMI 16 heads and 100 epochs
(their tables have 50 heads, which takes three times as long), of TURTLE 6,000 steps.
What differs: TEMI's products are in bfloat16, where the hardware has it. The features
are taken as they come.
"""

import copy

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.preprocessing import normalize
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from sk_mice._device import cpu_has_bfloat16
from sk_mice._engine.nearest import nearest_neighbors

# ------------------------------------------------------------------------------- TEMI


class Heads(nn.Module):
    """H clusterings: two layers, unit length, and a layer whose weights are normed."""

    def __init__(self, n_heads, n_features, n_clusters, hidden=512, bottleneck=256):
        super().__init__()

        def weights(*shape):
            return nn.Parameter(nn.init.trunc_normal_(torch.empty(shape), std=0.02))

        self.first = weights(n_features, n_heads * hidden)
        self.first_bias = nn.Parameter(torch.zeros(n_heads * hidden))
        self.second = weights(n_heads, hidden, bottleneck)
        self.second_bias = nn.Parameter(torch.zeros(n_heads, 1, bottleneck))
        self.directions = weights(n_heads, bottleneck, n_clusters)
        self.scales = nn.Parameter(torch.ones(n_heads, 1, n_clusters))

    def forward(self, x):
        """Log-probabilities (H, B, K) at temperature 0.1."""
        hidden = F.gelu(x @ self.first + self.first_bias)
        hidden = hidden.unflatten(1, (len(self.second), -1)).transpose(0, 1)
        embedding = F.normalize(hidden @ self.second + self.second_bias, dim=2)
        logits = embedding @ (self.scales * F.normalize(self.directions, dim=1))
        return (logits.float() / 0.1).log_softmax(dim=2)


def temi(
    X,
    n_clusters,
    seed,
    *,
    n_heads=16,
    n_epochs=100,
    n_neighbors=50,
    beta=0.6,
    batch_size=1024,
    lr=1e-4,
    momentum=0.996,
):
    """Labels (N,) from the head with the smallest loss, by its teacher.

    The learning rate is that of 256 rows a batch, and grows with the batch.
    """
    torch.manual_seed(seed)
    n_neighbors, batch_size = min(n_neighbors, len(X) - 1), min(batch_size, len(X))
    nearest, _ = nearest_neighbors(normalize(X), n_neighbors, seed)
    X, nearest = torch.from_numpy(np.float32(X)), torch.from_numpy(nearest)
    student = Heads(n_heads, X.shape[1], n_clusters)
    teacher = copy.deepcopy(student).requires_grad_(False)
    marginals = torch.full((n_heads, 1, n_clusters), 1 / n_clusters)
    biases = [student.first_bias, student.second_bias]
    weights = [student.first, student.second]
    last = [student.directions, student.scales]
    groups = [{"params": biases, "weight_decay": 0.0}, {"params": weights + last}]
    optimizer = torch.optim.AdamW(
        groups, lr=lr * batch_size / 256, weight_decay=1e-4, fused=True
    )
    n_batches = len(X) // batch_size
    warm_up = max(1, n_epochs // 5 * n_batches)
    rise = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / warm_up, 1, warm_up)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=cpu_has_bfloat16())
    for epoch in range(n_epochs):
        total = torch.zeros(n_heads)
        for batch in torch.randperm(len(X))[: n_batches * batch_size].split(batch_size):
            column = torch.randint(n_neighbors, batch.shape)
            x = torch.cat([X[batch], X[nearest[batch, column]]])
            with autocast:
                own, near = student(x).chunk(2, dim=1)
                with torch.no_grad():
                    target = teacher(x)
            mean = target.exp().mean(dim=1, keepdim=True)
            marginals = 0.9 * marginals + 0.1 * mean
            own_target, near_target = target.chunk(2, dim=1)
            # How far all teachers call the pair alike.
            weight = (own_target + near_target).exp().sum(dim=2).mean(dim=0)
            information = sum(
                (beta * (q + p) - marginals.log()).logsumexp(dim=2)
                for q, p in ((own, near_target), (near, own_target))
            )
            losses = -(weight * information).mean(dim=1) / 2
            optimizer.zero_grad()
            losses.mean().backward()
            if epoch == 0:  # the last layer waits
                for parameter in last:
                    parameter.grad = None
            optimizer.step()
            rise.step()
            with torch.no_grad():
                for slow, fast in zip(
                    teacher.parameters(), student.parameters(), strict=True
                ):
                    slow.lerp_(fast, 1 - momentum)
            total += losses.detach()
    with torch.no_grad(), autocast:
        best = total.argmin()
        parts = [teacher(part)[best].argmax(dim=1) for part in X.split(batch_size)]
    return torch.cat(parts).numpy()


# ----------------------------------------------------------------------------- TURTLE


def turtle(
    spaces,
    n_clusters,
    seed,
    *,
    n_steps=6000,
    n_inner_steps=10,
    batch_size=10_000,
    lr=1e-3,
    gamma=10.0,
):
    """Labels (N,) that linear classifiers of each feature space predict best.

    Parameters
    ----------
    spaces : list of arrays of shape (N, F)
    """
    torch.manual_seed(seed)
    spaces = [torch.from_numpy(np.float32(X)) for X in spaces]
    n = len(spaces[0])

    def linear():
        return [nn.Linear(X.shape[1], n_clusters) for X in spaces]

    encoders = [weight_norm(layer) for layer in linear()]
    outer = _adam(encoders, lr)
    for _ in range(n_steps):
        batch = spaces
        if n > batch_size:
            indices = torch.randperm(n)[:batch_size]
            batch = [X[indices] for X in spaces]
        shares = [
            encoder(X).softmax(dim=1)
            for encoder, X in zip(encoders, batch, strict=True)
        ]
        labels = sum(shares) / len(shares)
        classifiers = linear()  # a cold start
        inner = _adam(classifiers, lr)
        for _ in range(n_inner_steps):
            inner.zero_grad()
            _error(classifiers, batch, labels.detach()).backward()
            inner.step()
        for classifier in classifiers:
            classifier.requires_grad_(False)
        entropy = sum(torch.special.entr(share.mean(dim=0)).sum() for share in shares)
        outer.zero_grad()
        (_error(classifiers, batch, labels) - gamma * entropy).backward()
        outer.step()
    with torch.no_grad():
        shares = [e(X).softmax(dim=1) for e, X in zip(encoders, spaces, strict=True)]
    return sum(shares).argmax(dim=1).numpy()


def _adam(layers, lr):
    return torch.optim.Adam([p for layer in layers for p in layer.parameters()], lr=lr)


def _error(classifiers, batch, labels):
    pairs = zip(classifiers, batch, strict=True)
    return sum(F.cross_entropy(classifier(X), labels) for classifier, X in pairs)
