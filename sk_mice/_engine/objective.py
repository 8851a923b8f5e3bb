"""The equations of MiCE as pure functions on tensors.

Everything stays in log space and keeps the dtype of its inputs. Shapes use one
alphabet: B batch, K clusters (experts), D embedding, V queue.

Equation, theorem and section numbers refer to Tsai, Li and Zhu, "MiCE: Mixture of
Contrastive Experts for Unsupervised Image Clustering", ICLR 2021.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from .attention import log_sum_exp_over

__all__ = [
    "class_sums",
    "elbo",
    "expert_log_prob",
    "gating_log_prob",
    "info_nce",
    "log_evidence",
    "log_joint",
    "log_partition",
    "log_partition_bounds",
    "plain_log_partition",
    "posterior",
    "prototype_update",
    "queue_moments",
    "repelled_directions",
    "simplex_centres",
]


# ---------------------------------------------------------------- gating prototypes


def simplex_centres(n_clusters: int, dim: int, dtype=torch.float32) -> Tensor:
    """Centres of the Max-Mahalanobis distribution (Algorithm 2).

    Parameters
    ----------
    n_clusters : int
        Number of centres K, at most ``dim + 1``.
    dim : int
        Dimension D of the embedding space.
    dtype : torch.dtype, default=torch.float32
        Type of the result; computed in float64.

    Returns
    -------
    Tensor of shape (K, D)
        Unit vectors whose pairwise inner products are all -1 / (K - 1).

    Raises
    ------
    ValueError
        If K > D + 1: no such vectors exist.
    """
    if n_clusters > dim + 1:
        raise ValueError(
            "`embedding_dim` must be at least n_clusters - 1 = "
            f"{n_clusters - 1} for simplex gating prototypes; got {dim}."
        )
    n = n_clusters - 1  # the algorithm's recursion is a Cholesky decomposition
    inner = torch.eye(n, dtype=torch.float64) * (1 + 1 / max(n, 1)) - 1 / max(n, 1)
    factor = torch.linalg.cholesky(inner)  # (K - 1, K - 1)
    omega = torch.zeros(n_clusters, dim, dtype=torch.float64)
    omega[:n, :n] = factor
    omega[n, :n] = -factor.sum(dim=0)  # the centres sum to zero
    if n == 0:
        omega[0, 0] = 1.0
    return omega.to(dtype)


def repelled_directions(
    n_clusters: int, dim: int, dtype=torch.float32, *, n_steps: int = 300
) -> Tensor:
    """Unit vectors spread over the sphere by mutual repulsion.

    The stand-in for :func:`simplex_centres` where K > D + 1. A soft maximum of each
    vector's cosines to the others is pushed down by gradient descent while its
    sharpness grows, from a fixed random start.

    Parameters
    ----------
    n_clusters, dim : int
        K and D.
    dtype : torch.dtype, default=torch.float32
    n_steps : int, default=300

    Returns
    -------
    Tensor of shape (K, D)
        Unit vectors, the same ones on every call.
    """
    generator = torch.Generator().manual_seed(0)
    omega = torch.randn(n_clusters, dim, generator=generator, dtype=torch.float64)
    omega = F.normalize(omega, dim=1)
    step_size = 1.0
    for step in range(n_steps):
        progress = step / n_steps
        sharpness = 4.0 * 64.0**progress
        cosines = omega @ omega.T
        cosines.fill_diagonal_(-math.inf)
        push = torch.softmax(sharpness * cosines, dim=1) @ omega
        rate = step_size * (1 - progress)
        omega = F.normalize(omega - rate * push, dim=1)
    return omega.to(dtype)


def gating_log_prob(g: Tensor, omega: Tensor, kappa: float) -> Tensor:
    """Log-probabilities of the gating function (equation 4).

    Parameters
    ----------
    g : Tensor of shape (B, D)
        Gating embeddings, unit norm.
    omega : Tensor of shape (K, D)
        Gating prototypes, unit norm.
    kappa : float
        Temperature. ``math.inf`` gives the uniform gate of Assumption A3.

    Returns
    -------
    Tensor of shape (B, K)
        log p(z = k | x).
    """
    return torch.log_softmax(g @ omega.T / kappa, dim=1)


# -------------------------------------------------------------------------- experts


def log_partition(x: Tensor, positive: Tensor, queue: Tensor) -> Tensor:
    """Log of the estimated normalisation constant (equation 9), fused.

    Parameters
    ----------
    x : Tensor of shape (B, K, D)
        (f + mu) / tau, see :func:`expert_log_prob`.
    positive : Tensor of shape (B, K)
        The positive logits v . x, which are part of the estimate.
    queue : Tensor of shape (V, K, D)
        Teacher embeddings of earlier batches, unit norm. Gets no gradient. If it is
        bfloat16, so are the products with it; all sums stay in the type of x.

    Returns
    -------
    Tensor of shape (B, K)
        log(exp(v . x) + sum_i exp(q_i . x)).
    """
    if queue.dtype != torch.bfloat16:
        queue = queue.to(x.dtype)
    return torch.logaddexp(positive, log_sum_exp_over(queue, x))


def plain_log_partition(x: Tensor, positive: Tensor, queue: Tensor) -> Tensor:
    """Like :func:`log_partition`, written as in the paper (holds B x K x V)."""
    queue = queue.to(x.dtype)
    negative = torch.einsum("bkd,vkd->bkv", x, queue)  # (B, K, V)
    logits = torch.cat([positive.unsqueeze(-1), negative], dim=-1)
    return torch.logsumexp(logits, dim=-1)


def queue_moments(queue: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (K, D) and covariance (K, D, D) of the queue (V, K, D), not in bfloat16."""
    means, covariances = [], []
    for rows in queue.transpose(0, 1):  # of many experts a copy would be too large
        rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
        means.append(rows.mean(dim=0))
        rows = rows - means[-1]
        covariances.append(rows.T @ rows / len(rows))
    return torch.stack(means), torch.stack(covariances)


def log_partition_bounds(
    x: Tensor, positive: Tensor, n: int, mean: Tensor, covariance: Tensor
) -> Tensor:
    """What :func:`log_partition` lies between, at the cost of a queue of D.

    Over the queue a logit has a mean and a variance that its moments tell, and it lies
    in [-|x|, |x|], as the queue holds unit vectors. With t for a logit less the mean
    and c(u) = (exp(u) - 1 - u) / u^2, which increases, exp(t) is at most
    1 + t + c(u) t^2 where t <= u, and at least that where t >= u: so is its mean, with
    the variance for t^2.

    Parameters
    ----------
    x : Tensor of shape (B, K, D)
    positive : Tensor of shape (B, K)
    n : int
        V.
    mean, covariance : Tensor of shape (K, D) and (K, D, D)
        From :func:`queue_moments`.

    Returns
    -------
    Tensor of shape (2, B, K)
        Lower and upper bounds.
    """
    centre = (x * mean).sum(dim=-1)
    spread = torch.matmul(x.transpose(0, 1), covariance).transpose(0, 1)
    variance = (spread * x).sum(dim=-1).clamp_min(0)
    reach = 1.01 * x.norm(dim=-1)  # as bfloat16 rounds unit vectors
    furthest = torch.stack([-reach - centre, reach - centre])  # from the centre
    mean_exp = torch.log1p(variance * _curvature(furthest))
    return torch.logaddexp(positive, centre + mean_exp + math.log(n))


def _curvature(u):
    series = 0.5 + u / 6 + u.square() / 24
    return torch.where(u.abs() < 0.05, series, (torch.expm1(u) - u) / u.square())


def expert_log_prob(
    f: Tensor,
    v: Tensor,
    mu: Tensor | None,
    queue: Tensor,
    tau: float,
    partition=log_partition,
) -> Tensor:
    """Log-probabilities of the experts (equations 5, 6 and 9).

    Positive and negative logits share the vector x = (f + mu) / tau: they are v . x
    and q_i . x.

    Parameters
    ----------
    f, v : Tensor of shape (B, K, D)
        Student and teacher embeddings, unit norm.
    mu : Tensor of shape (K, D) or None
        Expert prototypes, unit norm. None leaves the class-level information out
        (Assumption A5).
    queue : Tensor of shape (V, K, D)
    tau : float
        Temperature.
    partition : callable, default=log_partition
        The estimate of the normalisation constant, in log space, from x, the positive
        logits and the queue.

    Returns
    -------
    Tensor of shape (B, K)
        log p(y | x, z = k); one for each estimate, if `partition` returns more.
    """
    # One pass over the largest tensors, and at tau = 1 none in the gradient.
    x = f / tau if mu is None else torch.add(mu / tau, f, alpha=1 / tau)
    positive = (v * x).sum(dim=-1)
    return positive - partition(x, positive, queue)


def info_nce(f: Tensor, v: Tensor, queue: Tensor, tau: float) -> Tensor:
    """Log-probabilities of MoCo's classifier (equation 2 without the slip in sign).

    Parameters
    ----------
    f, v : Tensor of shape (B, D)
        Student and teacher embeddings, unit norm.
    queue : Tensor of shape (V, D)
    tau : float

    Returns
    -------
    Tensor of shape (B,)
        log p(y | x); the InfoNCE loss is its negative.
    """
    return expert_log_prob(
        f.unsqueeze(1), v.unsqueeze(1), None, queue.unsqueeze(1), tau
    ).squeeze(1)


# --------------------------------------------------------------- inference and ELBO


def log_joint(gating: Tensor, experts: Tensor) -> Tensor:
    """Log p(y, z = k | x) from both log-probabilities (equation 3), each (B, K)."""
    return gating + experts


def posterior(joint: Tensor) -> Tensor:
    """Posterior q(z | x, y) over the experts (equation 10), (B, K) -> (B, K)."""
    return torch.softmax(joint, dim=1)


def log_evidence(joint: Tensor) -> Tensor:
    """Log p(y | x), (B, K) -> (B,): what the ELBO equals at the exact posterior."""
    return torch.logsumexp(joint, dim=1)


def elbo(joint: Tensor, q: Tensor | None = None) -> Tensor:
    """Evidence lower bound of every sample (equations 7 and 11).

    Parameters
    ----------
    joint : Tensor of shape (B, K)
        Log-joint.
    q : Tensor of shape (B, K) or None
        Any distribution over the experts. None stands for the exact posterior, for
        which the bound is tight; its gradient is then the one with q held constant.

    Returns
    -------
    Tensor of shape (B,)
        E_q[log p(y, z | x)] + H(q).
    """
    if q is None:
        return log_evidence(joint)
    return (q * joint - torch.xlogy(q, q)).sum(dim=1)


def class_sums(v: Tensor, labels: Tensor) -> Tensor:
    """Sum, for each expert, its teacher embeddings of the samples assigned to it.

    Parameters
    ----------
    v : Tensor of shape (B, K, D)
    labels : Tensor of shape (B,)
        Hard assignments.

    Returns
    -------
    Tensor of shape (K, D)
        The unnormalised prototypes of equation 13.
    """
    own = v.gather(1, labels.view(-1, 1, 1).expand(-1, 1, v.shape[2])).squeeze(1)
    return torch.zeros_like(v[0]).index_add_(0, labels, own)


def prototype_update(sums: Tensor, previous: Tensor) -> Tensor:
    """Analytical update of the expert prototypes (equation 13).

    Parameters
    ----------
    sums : Tensor of shape (K, D)
        From :func:`class_sums`, of all samples.
    previous : Tensor of shape (K, D)
        Kept where a sum is zero, as for an empty cluster.

    Returns
    -------
    Tensor of shape (K, D)
        Unit vectors (and previous ones).
    """
    norms = sums.norm(dim=1, keepdim=True)
    return torch.where(norms > 0, sums / norms.clamp_min(1e-30), previous)
