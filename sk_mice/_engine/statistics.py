"""Sums that are kept while an epoch trains."""

import torch
from torch import Tensor

from . import objective
from .distributed import Group

N_BINS = 10  # in the posterior's histogram


class EpochStatistics:
    """Sums over an epoch, kept on the device and read once at the end of the epoch.

    Besides the figures of the history, these are the class sums for the analytical
    update (equation 13) and the hard assignment of every sample.
    """

    def __init__(self, n_samples: int, n_experts: int, dim: int, device):
        self.labels = torch.full((n_samples,), -1, device=device)
        # (K, D): sums of the teacher embeddings v_k assigned to each expert k.
        self.class_sums = torch.zeros(
            n_experts, dim, dtype=torch.float32, device=device
        )
        # ELBO and confidence, summed in float64, as float32 cannot count beyond 2**24.
        self._totals = torch.zeros(2, dtype=torch.float64, device=device)
        self._bins = torch.zeros(N_BINS, dtype=torch.int64, device=device)
        self._previous = self.labels.clone()

    def reset(self) -> None:
        self._previous.copy_(self.labels)
        self.labels.fill_(-1)
        for total in (self.class_sums, self._totals, self._bins):
            total.zero_()

    @torch.no_grad()
    def add(self, indices: Tensor, joint: Tensor, elbo: Tensor, v: Tensor) -> None:
        q = objective.posterior(joint)  # (B, K)
        confidence, labels = q.max(dim=1)
        self.labels[indices] = labels
        self._totals += torch.stack([elbo * len(q), confidence.sum()])
        bins = (q * N_BINS).long().clamp_(0, N_BINS - 1).flatten()
        self._bins.index_add_(0, bins, torch.ones_like(bins))
        self.class_sums += objective.class_sums(v, labels, len(self.class_sums))

    def combine(self, group: Group) -> None:
        """Add what the other processes have seen."""
        group.sum(self.class_sums, self._totals, self._bins)
        group.maximum(self.labels)

    def summary(self) -> dict:
        n_samples, n_experts = len(self.labels), len(self.class_sums)
        elbo, confidence = (self._totals / n_samples).tolist()
        changed = (self.labels != self._previous).float().mean().item()
        return {
            "elbo": elbo,
            "confidence": confidence,
            "posterior_counts": self._bins.tolist(),
            "changed": changed,
            "cluster_sizes": self.labels.bincount(minlength=n_experts).tolist(),
        }
