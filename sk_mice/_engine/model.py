"""The networks of MiCE: student, teacher, heads, queue and prototypes.

Shapes: B batch, K experts, H heads of the experts (K, or 1 that all share), D
embedding, V queue, F features.
"""

import copy
import math
from functools import lru_cache
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import objective


class _Encoder(nn.Module):
    """A backbone with linear heads of the experts and perhaps one of the gate."""

    def __init__(self, backbone, n_features, n_heads, dim, *, gated, own_format):
        super().__init__()
        self.backbone = backbone
        self.own_format = own_format
        self.n_heads = n_heads
        self.experts = nn.Linear(n_features, n_heads * dim)
        self.gate = nn.Linear(n_features, dim) if gated else None

    def features(self, x: Tensor) -> Tensor:
        """(B, *shape) -> (B, F). The user's own network may write on what it gets."""
        if self.own_format is not None:
            x = x.clone(memory_format=self.own_format)
        return self.backbone(x)

    def expert_embeddings(self, features: Tensor) -> Tensor:
        """(B, F) -> (B, H, D), unit norm, at least float32."""
        f = self.experts(features).unflatten(1, (self.n_heads, -1))
        return F.normalize(_at_least_float32(f), dim=-1)

    def gating_embeddings(self, features: Tensor) -> Tensor:
        """(B, F) -> (B, D), unit norm, at least float32."""
        return F.normalize(_at_least_float32(self.gate(features)), dim=-1)


def _at_least_float32(x: Tensor) -> Tensor:
    # The networks may run in half precision; the objective never does.
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


class ContrastiveMixture(nn.Module):
    """Mixture of contrastive experts; with one expert and no gate, MoCo (Theorem 3).

    Student and gate share a backbone (Appendix, "Experiment settings"); the teacher is
    an exponential moving average of the student with batch-norm statistics of its own.

    Parameters
    ----------
    network : nn.Module
        Maps (B, *shape) to (B, F). Becomes the student's; the teacher's is a copy.
    n_features, n_experts, embedding_dim, queue_size : int
        F, K, D and V.
    omega : Tensor of shape (K, D) or None
        Gating prototypes. None leaves out the gate and the expert prototypes
        (Assumptions A3 and A5).
    tau, kappa : float
        Temperatures of experts and gate.
    class_level : bool, default=True
        Whether a model with a gate has expert prototypes, too (without: A5).
    shared_head : bool, default=False
        Whether all experts share one head (A4), and so the embeddings in the queue.
    gate_view : bool, default=True
        Whether the gate sees a view of its own, as in the paper, or the student's.
    queue_dtype : torch.dtype, default=torch.float32
        Type of the queue, and of the products with it.
    description : Backbone or None
        Of `network`, by its parameters; None if it is the user's own.
    own_format : torch.memory_format or None, default=None
        Of the images and the weights of the user's own network.

    Attributes
    ----------
    queue : Tensor of shape (V, H, D)
        Earlier teacher embeddings, at first random unit vectors.
    expert_prototypes : Parameter of shape (K, D) or None
        Normalised where they are used.
    gating_prototypes : Parameter of shape (K, D) or None
        Unit vectors. Fixed, unless a trainer is told to train them.
    trained_blocks : tuple of str or None
        See :meth:`train_only`.
    """

    trained_blocks: tuple[str, ...] | None
    _frozen: tuple[str, ...]  # weights that `train_only` has frozen

    def __init__(
        self,
        network,
        n_features,
        *,
        n_experts,
        embedding_dim,
        queue_size,
        omega,
        tau,
        kappa,
        class_level=True,
        shared_head=False,
        gate_view=True,
        queue_dtype=torch.float32,
        description=None,
        own_format=None,
    ):
        super().__init__()
        self.description = description
        self.trained_blocks = None
        self._frozen = ()
        self.n_experts, self.embedding_dim = n_experts, embedding_dim
        gated = omega is not None
        n_heads = 1 if shared_head else n_experts
        size = n_features, n_heads, embedding_dim
        self.student = _Encoder(network, *size, gated=gated, own_format=own_format)
        self.teacher = copy.deepcopy(self.student)
        self.teacher.gate = None
        self.teacher.requires_grad_(False)
        self.tau, self.kappa = tau, kappa  # callbacks may change them
        self.gate_view = gate_view
        queue = torch.empty(queue_size, n_heads, embedding_dim, dtype=queue_dtype)
        self.register_buffer("queue", _random_units(queue))
        self.register_buffer("queue_index", torch.zeros((), dtype=torch.long))
        self.gating_prototypes = self.expert_prototypes = None
        if gated:
            self.gating_prototypes = nn.Parameter(omega, requires_grad=False)
        if gated and class_level:
            mu = torch.empty(n_experts, embedding_dim, dtype=torch.float32)
            self.expert_prototypes = nn.Parameter(_random_units(mu))

    def placed(self, device) -> Self:
        """Move the model to a device, in evaluation mode, and return it.

        Weights get the memory format of the images: convolutions are faster if their
        channels come last.
        """
        fmt = self.student.own_format or torch.channels_last
        return self.to(device, memory_format=fmt).eval()

    @property
    def is_ours(self) -> bool:
        """Whether the backbone is one of this package, not the user's own."""
        return self.description is not None

    @property
    def n_views(self) -> int:
        """Random views of a step: student, teacher and perhaps one for the gate."""
        return 3 if self.gate_learns and self.gate_view else 2

    @property
    def gate_learns(self) -> bool:
        """Whether there is a gate, and not the uniform one of Assumption A3."""
        return self.gating_prototypes is not None and math.isfinite(self.kappa)

    @property
    def shared_head(self) -> bool:
        """Whether the experts share one head (Assumption A4)."""
        return self.student.n_heads < self.n_experts

    @property
    def class_level(self) -> bool:
        """Whether the experts have prototypes (without: Assumption A5)."""
        return self.expert_prototypes is not None

    def prototypes(self) -> Tensor | None:
        """Expert prototypes mu (K, D) as unit vectors."""
        if self.expert_prototypes is None:
            return None
        return F.normalize(self.expert_prototypes, dim=-1)

    def forward(self, views: Tensor) -> tuple[Tensor, Tensor]:
        """Log p(y, z | x), (B, K), and what :meth:`teach` returns, (B, H, D).

        The views (n_views, B, *shape) are for the teacher, the student and, if there
        are three, the gate.
        """
        f, v, g = self.embed(views)
        return self.log_joint(f, v, g), v

    def embed(self, views: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Embeddings f, v (B, H, D) and g (B, D) of one step's views.

        That of the teacher, v, has no gradient.
        """
        v = self.teach(views[0])
        # One pass over both of the student's views: one set of kernels, one backward.
        features = self.student.features(views[1:].flatten(0, 1))
        f = self.student.expert_embeddings(features[: len(v)])
        g = None
        if self.gate_learns:
            g = self.student.gating_embeddings(features[-len(v) :])
        return f, v, g

    @torch.no_grad()
    def teach(self, x: Tensor) -> Tensor:
        """The teacher's embeddings (B, H, D) of x, without gradient."""
        return self.teacher.expert_embeddings(self.teacher.features(x))

    def log_joint(
        self, f: Tensor, v: Tensor, g: Tensor | None, partition=None
    ) -> Tensor:
        """Log p(y, z | x), (B, K), from what :meth:`embed` returns."""
        with torch.autocast(f.device.type, enabled=False):
            experts = objective.expert_log_prob(
                f, v, self.prototypes(), self.queue, self.tau, partition
            )
            if not self.gate_learns:
                joint = experts - math.log(self.n_experts)  # Assumption A3
                return joint.expand(*joint.shape[:-1], self.n_experts)
            gating = objective.gating_log_prob(g, self.gating_prototypes, self.kappa)
            return objective.log_joint(gating, experts)

    # ------------------------------------------------------------------ frozen blocks

    def train_only(self, blocks: tuple[str, ...] | None) -> None:
        """Freeze the backbones, except for the modules with these names.

        None freezes nothing. Frozen modules keep their weights and their batch-norm
        statistics. Weights that an earlier call has frozen are trained again, those
        that the user has frozen are not.
        """
        network = self.student.backbone
        for name in self._frozen:
            network.get_parameter(name).requires_grad_(True)
        self.trained_blocks, self._frozen = blocks, ()
        if blocks is not None:
            parts = map(network.get_submodule, blocks)
            trained = {id(weight) for part in parts for weight in part.parameters()}
            self._frozen = tuple(
                name
                for name, weight in network.named_parameters()
                if weight.requires_grad and id(weight) not in trained
            )
            for name in self._frozen:
                network.get_parameter(name).requires_grad_(False)

    def train(self, mode=True):
        """Set the mode, in which frozen blocks stay in evaluation mode."""
        super().train(mode)
        if mode and self.trained_blocks is not None:
            for network in (self.student.backbone, self.teacher.backbone):
                network.eval()
                for name in self.trained_blocks:
                    network.get_submodule(name).train()
        return self

    # --------------------------------------------------------------------- the start

    @torch.no_grad()
    def start_from(self, single: "ContrastiveMixture") -> None:
        """Begin as the special case of one shared expert (Assumption A4).

        The backbones of a trained model with one expert are taken over, its head and
        its queue copied for every head.
        """
        pairs = (self.student, single.student), (self.teacher, single.teacher)
        for mine, other in pairs:
            mine.backbone.load_state_dict(other.backbone.state_dict())
            mine.experts.weight.copy_(other.experts.weight.repeat(mine.n_heads, 1))
            mine.experts.bias.copy_(other.experts.bias.repeat(mine.n_heads))
        self.queue.copy_(single.queue.expand_as(self.queue))
        self.queue_index.copy_(single.queue_index)

    @torch.no_grad()
    def set_partition(self, labels: Tensor, features: Tensor, sums: Tensor) -> None:
        """Set prototypes and gate to a partition of the samples.

        The expert prototypes become the mean directions of their clusters
        (equation 13), the gating head the ridge regression of each sample's gating
        prototype on its features. For all samples there are labels (N,), features
        (N, F) of the student's backbone, and the class sums (K, D).
        """
        mu = self.expert_prototypes
        if mu is not None:
            mu.copy_(objective.prototype_update(sums, mu))
        weight, bias = _ridge(features, self.gating_prototypes[labels])
        self.student.gate.weight.copy_(weight)
        self.student.gate.bias.copy_(bias)

    # ------------------------------------------------------------------- after a step

    @torch.no_grad()
    def update_teacher(self, momentum: float) -> None:
        """Theta' <- m theta' + (1 - m) theta; batch-norm statistics are left alone.

        So are frozen blocks, in which student and teacher may differ.
        """
        student = [
            *self.student.backbone.parameters(),
            *self.student.experts.parameters(),
        ]
        teacher = list(self.teacher.parameters())
        if self.trained_blocks is not None:
            pairs = zip(teacher, student, strict=True)
            trained = [(mean, new) for mean, new in pairs if new.requires_grad]
            teacher, student = map(list, zip(*trained, strict=True))
        torch._foreach_lerp_(teacher, student, 1 - momentum)

    @torch.no_grad()
    def enqueue(self, v: Tensor) -> None:
        """Write the teacher's embeddings (B, H, D) over the oldest of the queue."""
        size = len(self.queue)
        offsets = torch.arange(len(v), device=v.device)[-size:]
        slots = (self.queue_index + offsets) % size
        self.queue.index_copy_(0, slots, v[-size:].to(self.queue.dtype))
        self.queue_index.add_(len(v)).remainder_(size)

    # ------------------------------------------------------------------------ pickles

    @torch.no_grad()
    def round_queue(self) -> None:
        """Round the queue as pickles and copies do, so that these infer the same."""
        self.queue.copy_(_halved(self.queue))

    def __getstate__(self):
        queue = _halved(self.queue)
        if queue is not self.queue:
            # Not a tensor: torch passes memory to a spawned process, not values, and
            # the memory of a tensor that is made here is freed too early.
            queue = queue.cpu().numpy()
        state = self.__dict__.copy()
        state["_buffers"] = self._buffers | {"queue": queue}
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        if isinstance(self.queue, np.ndarray):
            like = self.student.experts.weight
            self.queue = torch.tensor(self.queue, dtype=like.dtype, device=like.device)


def _random_units(tensor: Tensor) -> Tensor:
    """Fill a tensor with random unit vectors, unless it is on meta."""
    if not tensor.is_meta:
        for rows in tensor.split(256):  # without a copy of a large one
            rows.copy_(F.normalize(torch.randn(rows.shape), dim=-1))
    return tensor


def _halved(queue: Tensor) -> Tensor:
    """The queue in 16 bits; for unit vectors float16 is closer than bfloat16."""
    return queue if queue.dtype == torch.bfloat16 else queue.half()


def _ridge(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Weight (D, F) and bias (D,) of the ridge regression of y (N, D) on x (N, F).

    The penalty is a hundredth of the mean variance of the features.
    """
    # A copy, which is large and therefore centred in place.
    centred, y = x.to(torch.float64, copy=True), y.double()
    x_mean, y_mean = centred.mean(dim=0), y.mean(dim=0)
    centred -= x_mean
    covariance = centred.T @ centred / len(x)
    ridge = 1e-2 * covariance.diagonal().mean() + 1e-12
    covariance.diagonal().add_(ridge)
    weight = torch.linalg.solve(covariance, centred.T @ (y - y_mean) / len(x)).T
    return weight, y_mean - weight @ x_mean


def gating_prototypes(n_clusters: int, dim: int) -> Tensor:
    """Gating prototypes omega (K, D): the centres of Algorithm 2, if K <= D + 1.

    Of more clusters, unit vectors spread by repulsion.
    """
    if n_clusters <= dim + 1:
        return objective.simplex_centres(n_clusters, dim).float()
    return repelled_directions(n_clusters, dim).float()


@lru_cache(maxsize=8)  # as many of them take long
def repelled_directions(n_clusters: int, dim: int) -> Tensor:
    """Unit vectors (K, D), float64, spread by mutual repulsion; not to be written to.

    The stand-in for :func:`objective.simplex_centres` where K > D + 1. A soft maximum
    of each vector's cosines to the others is pushed down by gradient descent while its
    sharpness grows, from a fixed random start.
    """
    generator = torch.Generator().manual_seed(0)
    omega = torch.randn(n_clusters, dim, generator=generator, dtype=torch.float64)
    omega = F.normalize(omega, dim=1)
    n_steps = 300 if n_clusters > 1 else 0  # nothing repels a single one
    for step in range(n_steps):
        progress = step / n_steps
        sharpness = 4.0 * 64.0**progress
        cosines = omega @ omega.T
        cosines.fill_diagonal_(-math.inf)
        push = torch.softmax(sharpness * cosines, dim=1) @ omega
        omega = F.normalize(omega - (1 - progress) * push, dim=1)
    return omega
