"""The equations of MiCE as pure functions on tensors.

Everything stays in log space and keeps the dtype of its inputs. Shapes use one
alphabet: B batch, K clusters (experts), H heads of the experts (K, or 1 that all share:
Assumption A4), D embedding, V queue.

Equation, theorem and section numbers refer to Tsai, Li and Zhu, "MiCE: Mixture of
Contrastive Experts for Unsupervised Image Clustering", ICLR 2021.
"""

import torch
from torch import Tensor

from .attention import LARGEST_LOGIT, log_sum_exp_of_sums, log_sum_exp_over

# ---------------------------------------------------------------- gating prototypes


def simplex_centres(n_clusters: int, dim: int) -> Tensor:
    """Centres of the Max-Mahalanobis distribution (Algorithm 2).

    Parameters
    ----------
    n_clusters : int
        Number of centres K, at most ``dim + 1``.
    dim : int
        Dimension D of the embedding space.

    Returns
    -------
    float64 Tensor of shape (K, D)
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
    return omega


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
    """Log of the estimated normalisation constant (equation 9).

    Parameters
    ----------
    x : Tensor of shape (B, K, D)
        (f + mu) / tau, see :func:`expert_log_prob`.
    positive : Tensor of shape (B, K)
        The positive logits v . x, which are part of the estimate.
    queue : Tensor of shape (V, H, D)
        Teacher embeddings of earlier batches, unit norm. Gets no gradient. If it is
        bfloat16, so are the products with it; all sums stay in the type of x.

    Returns
    -------
    Tensor of shape (B, K)
        log(exp(v . x) + sum_i exp(q_i . x)).
    """
    rows = x.reshape(-1, queue.shape[1], x.shape[-1])  # B x K of them for one head
    negative = log_sum_exp_over(_cast(queue, x), rows).view_as(positive)
    return torch.logaddexp(positive, negative)


def expert_log_prob(
    f: Tensor,
    v: Tensor,
    mu: Tensor | None,
    queue: Tensor,
    tau: float,
    partition=None,
) -> Tensor:
    """Log-probabilities of the experts (equations 5, 6 and 9).

    Positive and negative logits share the vector x = (f + mu) / tau: they are v . x
    and q_i . x.

    Parameters
    ----------
    f, v : Tensor of shape (B, H, D)
        Student and teacher embeddings, unit norm.
    mu : Tensor of shape (K, D) or None
        Expert prototypes, unit norm. None leaves the class-level information out
        (Assumption A5).
    queue : Tensor of shape (V, H, D)
    tau : float
        Temperature.
    partition : callable, default=None
        The estimate of the normalisation constant, in log space, from x, the positive
        logits and the queue. None stands for :func:`log_partition`, and for experts
        that share a head for :func:`shared_expert_log_prob`, which is the same.

    Returns
    -------
    Tensor of shape (B, K)
        log p(y | x, z = k); one for each estimate, if `partition` returns more. (B, H)
        without mu.
    """
    shared = mu is not None and queue.shape[1] < len(mu)
    if shared and partition is None and 2 / tau <= LARGEST_LOGIT:
        return shared_expert_log_prob(f[:, 0], v[:, 0], mu, queue[:, 0], tau)
    # One pass over the largest tensors, and at tau = 1 none in the gradient.
    x = f / tau if mu is None else torch.add(mu / tau, f, alpha=1 / tau)
    positive = (v * x).sum(dim=-1)
    return positive - (partition or log_partition)(x, positive, queue)


def shared_expert_log_prob(
    f: Tensor, v: Tensor, mu: Tensor, queue: Tensor, tau: float
) -> Tensor:
    """:func:`expert_log_prob` of experts that share a head (Assumption A4).

    The terms of the partition function are products, exp(q_i . f / tau) times
    exp(q_i . mu_k / tau), so that its sums over i for all K experts are one product of
    a (B, V) and a (V, K) matrix.

    Parameters
    ----------
    f, v : Tensor of shape (B, D)
    mu : Tensor of shape (K, D)
    queue : Tensor of shape (V, D)
    tau : float
        At least 1 / 30, for the range of the exponentials.

    Returns
    -------
    Tensor of shape (B, K)
        log p(y | x, z = k).
    """
    f, mu = f / tau, mu / tau
    positive = (v * f).sum(dim=1, keepdim=True) + v @ mu.T
    negative = log_sum_exp_of_sums(_cast(queue, f), f, mu)
    return positive - torch.logaddexp(positive, negative)


def _cast(queue, x):
    return queue if queue.dtype == torch.bfloat16 else queue.to(x.dtype)


# --------------------------------------------------------------- inference and ELBO


def log_joint(gating: Tensor, experts: Tensor) -> Tensor:
    """Log p(y, z = k | x) from both log-probabilities (equation 3), each (B, K)."""
    return gating + experts


def posterior(joint: Tensor) -> Tensor:
    """Posterior q(z | x, y) over the experts (equation 10), (B, K) -> (B, K)."""
    return torch.softmax(joint, dim=1)


def log_evidence(joint: Tensor) -> Tensor:
    """Log p(y | x), (B, K) -> (B,): equals the ELBO at the exact posterior."""
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


def class_sums(v: Tensor, labels: Tensor, n_clusters: int) -> Tensor:
    """Sum, for each expert, its teacher embeddings of the samples assigned to it.

    Parameters
    ----------
    v : Tensor of shape (B, H, D)
    labels : Tensor of shape (B,)
        Hard assignments.
    n_clusters : int
        K.

    Returns
    -------
    Tensor of shape (K, D)
        The unnormalised prototypes of equation 13.
    """
    dim = v.shape[2]
    own = labels.view(-1, 1, 1).expand(-1, 1, dim)
    own = v.expand(-1, n_clusters, -1).gather(1, own).squeeze(1)
    return v.new_zeros(n_clusters, dim).index_add_(0, labels, own)


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
    return torch.where(norms > 0, sums / norms, previous)
