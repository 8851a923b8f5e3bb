"""Inference with a trained model, and bounds that make it fast."""

import copy
import math
from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from .ambient import OwnDraws
from .attention import LARGEST_LOGIT
from .distributed import ALONE
from .model import ContrastiveMixture
from .threads import in_threads

# Limits of a batch. The queue is read once for each.
LARGEST_BATCH, BATCH_VALUES = 2048, 2**25
# Limit of the views of a batch if X may be larger than memory, and on a CPU, where the
# system zeroes larger blocks of memory anew for each batch.
FEW_VALUES_OF_VIEWS = 2**21
# Limits of the pieces in which networks compute a batch, and values of a piece that a
# CPU's caches hold with its activations.
LARGEST_PIECE, SMALLEST_PIECE, PIECE_VALUES = 1024, 32, 2**16
ROWS_OF_BLOCK = 16  # a multiple of the rows that products of matrices take at a time
# Nats by which bounds must separate experts, as the exact sum is rounded. In bfloat16,
# the error of a logit grows as 1 / tau.
MARGIN, MARGIN_OF_BFLOAT16 = 0.01, 0.012


class Inference:
    """The networks of a model in evaluation mode, prepared for inference.

    The model is only read. If it is trained further, make a new object.
    """

    def __init__(self, model: ContrastiveMixture):
        self.model = model
        self.student, self.teacher = (
            folded(encoder.backbone) if model.is_ours else encoder.features
            for encoder in (model.student, model.teacher)
        )
        self._moments: tuple[Tensor, Tensor] | None = None
        self._n_labelled = 0

    def over(self, samples, views, *wanted: str, group=ALONE) -> list[np.ndarray]:
        """Infer the quantities `wanted` (see :meth:`__call__`) of all samples.

        They are arrays, of float32 except for labels. The processes of the group share
        the samples.
        """
        own, n = group.rows(len(samples)), len(samples)
        parts = self.batches(samples, views, *wanted, rows=own)
        found = gathered(parts, len(range(n)[own]))
        return [group.gather(own, n, between_steps=True).numpy() for own in found]

    def batches(self, samples, views, *wanted: str, rows=slice(None)):
        """Yield quantities of all samples, or of some rows, batch by batch."""
        moments = None
        if "label" in wanted and not self._is_one_product:
            moments = self._moments_for(len(samples))
        for batch in samples.in_order(self.batch_size(samples, views), rows):
            yield self(views.plain(batch), *wanted, moments=moments)

    def _moments_for(self, n: int):
        """Moments of the queue for n more labels; None while few have been asked for.

        Computing them takes as long as so many exact labels. They are kept, as a
        service asks for one label at a time.
        """
        if self._moments is None:
            self._n_labelled += n
            if self._n_labelled > self.model.embedding_dim:
                self._moments = queue_moments(self.model.queue)
        return self._moments

    @property
    def _is_one_product(self) -> bool:
        """Whether the partition functions are one product, of V x K.

        For many experts it is quicker than their bounds, which are of K x D x D.
        """
        model = self.model
        many = model.n_experts * model.embedding_dim > len(model.queue)
        return model.shared_head and many and 2 / model.tau <= LARGEST_LOGIT

    def batch_size(self, samples, views) -> int:
        """Number of samples per batch, so that memory is bounded."""
        model = self.model
        width = model.embedding_dim * (1 if self._is_one_product else model.n_experts)
        few = samples.is_large or model.queue.device.type == "cpu"
        of_views = FEW_VALUES_OF_VIEWS if few else BATCH_VALUES
        n = min(
            of_views // math.prod(views.out_shape),
            BATCH_VALUES // max(width, model.n_experts),
        )
        return min(LARGEST_BATCH, max(SMALLEST_PIECE, n))

    @torch.inference_mode()
    def __call__(self, x: Tensor, *wanted: str, moments=None) -> list[Tensor]:
        """Infer quantities of a batch.

        Parameters
        ----------
        x : Tensor of shape (B, *shape)
        *wanted : str
            Any of "joint", the log-joint (B, K); "label", its largest expert (B,);
            "teacher", the teacher's embeddings (B, H, D); "features", the student's
            backbone's output (B, F); and, if there is a gate, "gating" embeddings
            (B, D). Nothing else is computed.
        moments : tuple of Tensor, default=None
            From :func:`queue_moments`; they make "label" faster.

        Returns
        -------
        list of Tensor
            The quantities, in the order of `wanted`.
        """
        # The user's networks may draw in evaluation mode, too.
        with nullcontext() if self.model.is_ours else OwnDraws(0):
            return self._infer(x, wanted, moments)

    def _infer(self, x: Tensor, wanted, moments) -> list[Tensor]:
        model, found = self.model, {}
        needs_joint = "joint" in wanted or "label" in wanted
        if needs_joint or "teacher" in wanted:
            features = in_pieces(self.teacher, x, model.is_ours)
            found["teacher"] = v = model.teacher.expert_embeddings(features)
        if needs_joint or "features" in wanted or "gating" in wanted:
            found["features"] = features = in_pieces(self.student, x, model.is_ours)
        g = None
        if "gating" in wanted or (needs_joint and model.gate_learns):
            found["gating"] = g = model.student.gating_embeddings(features)
        if needs_joint:
            f = model.student.expert_embeddings(features)
        if "joint" in wanted:
            found["joint"] = self._joint(f, v, g)
        if "label" in wanted:
            found["label"] = self._labels(f, v, g, moments)
        return [found[name] for name in wanted]

    def _joint(self, f, v, g) -> Tensor:
        """The log-joint, whose last bits do not depend on a sample's place in a batch.

        Products of matrices sum the rows of whole blocks in another order than the
        rows that are left over, so a batch is filled up with copies of its last row.
        """
        n, missing = len(f), -len(f) % ROWS_OF_BLOCK
        if missing:
            rows = torch.arange(n + missing, device=f.device).clamp_max(n - 1)
            f, v, g = f[rows], v[rows], None if g is None else g[rows]
        return self.model.log_joint(f, v, g)[:n]

    def _labels(self, f, v, g, moments) -> Tensor:
        """Expert with the largest log-joint, from bounds where they decide."""
        model = self.model
        if moments is None:
            return _most_probable(self._joint(f, v, g))

        def bounds(x, positive, queue):
            return log_partition_bounds(x, positive, len(queue), *moments)

        # The partition is subtracted: its lower bound gives the largest value.
        most, least = model.log_joint(f, v, g, bounds)
        labels = least.argmax(dim=1, keepdim=True)
        rivals = most.scatter(1, labels, -math.inf).amax(dim=1)
        margin = MARGIN
        if model.queue.dtype == torch.bfloat16:
            margin = max(MARGIN, MARGIN_OF_BFLOAT16 / model.tau)
        decided = least.gather(1, labels).squeeze(1) > rivals + margin
        labels = labels.squeeze(1)
        rest = torch.nonzero(~decided).squeeze(1)  # also values that are not finite
        if len(rest):
            gating = None if g is None else g[rest]
            labels[rest] = _most_probable(self._joint(f[rest], v[rest], gating))
        return labels


def _most_probable(joint: Tensor) -> Tensor:
    """Columns (B,) of the largest values (B, K); -1 where these are not finite."""
    return joint.argmax(dim=1).where(joint.amax(dim=1).isfinite(), -1)


# ------------------------------------------------- bounds of the log-partition function


def queue_moments(queue: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (H, D) and covariance (H, D, D) of the queue (V, H, D), at least float32."""
    means, covariances = [], []
    for rows in queue.transpose(0, 1):  # a copy for many experts would be too large
        rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
        means.append(rows.mean(dim=0))
        rows = rows - means[-1]
        covariances.append(rows.T @ rows / len(rows))
    return torch.stack(means), torch.stack(covariances)


def log_partition_bounds(
    x: Tensor, positive: Tensor, n: int, mean: Tensor, covariance: Tensor
) -> Tensor:
    """Bounds of `objective.log_partition`, at the cost of a queue of length D.

    The moments of the queue give the mean and the variance of a logit over the queue.
    A logit lies in [-|x|, |x|], because the queue holds unit vectors. Let t be a logit
    less the mean, and c(u) = (exp(u) - 1 - u) / u^2, which increases. Then exp(t) is at
    most 1 + t + c(u) t^2 for t <= u, and at least that for t >= u. The same bounds hold
    for the mean of exp(t), with the variance in place of t^2.

    From x (B, K, D), the positive logits (B, K), V and :func:`queue_moments`. Returns
    lower and upper bounds, (2, B, K).
    """
    centre = (x * mean).sum(dim=-1)
    spread = torch.matmul(x.transpose(0, 1), covariance).transpose(0, 1)
    variance = (spread * x).sum(dim=-1).clamp_min(0)
    reach = 1.01 * x.norm(dim=-1)  # bfloat16 rounds the lengths of unit vectors
    furthest = torch.stack([-reach - centre, reach - centre])  # from the centre
    mean_exp = torch.log1p(variance * _curvature(furthest))
    return torch.logaddexp(positive, centre + mean_exp + math.log(n))


def _curvature(u):
    series = 0.5 + u / 6 + u.square() / 24
    return torch.where(u.abs() < 0.05, series, (torch.expm1(u) - u) / u.square())


# ------------------------------------------------------------------------ networks


def gathered(batches, n: int) -> list[Tensor]:
    """Quantities of batches, of n samples in all, on the CPU.

    Their memory is allocated at once. Small pieces between the large tensors of batches
    would keep the memory of these from being used again.
    """
    found, start = None, 0
    for values in batches:
        if found is None:
            found = [torch.empty(n, *v.shape[1:], dtype=v.dtype) for v in values]
        for whole, value in zip(found, values, strict=True):
            whole[start : start + len(value)] = value
        start += len(values[0])
    return found


def in_pieces(network, x: Tensor, at_once=True) -> Tensor:
    """Outputs of a network in evaluation mode, without gradients.

    On a CPU, the pieces fit into its caches, which is two to three times as fast. For
    images, each thread computes a piece if several may call the network at once.
    """

    def output(piece):
        with torch.inference_mode():
            return network(piece)

    n, n_at_once = LARGEST_PIECE, 0
    if x.device.type == "cpu":
        n = min(n, max(SMALLEST_PIECE, PIECE_VALUES // x[0].numel()))
        if at_once and x.ndim == 4:  # vectors take less time than a change of threads
            n_at_once = -(-len(x) // n)
    return torch.cat(list(in_threads(output, x.split(n), n_at_once)))


def folded(backbone: nn.Module) -> nn.Module:
    """A copy of a residual network with batch norms folded into the convolutions.

    In evaluation mode, batch norm is a linear map after that of the convolution. Each
    comes right after its convolution among the modules of a block, also of
    torchvision's. Layers that have no batch norm are shared with the copy.
    """
    leaves = [layer for layer in backbone.modules() if not any(layer.children())]
    backbone = copy.deepcopy(backbone, {id(layer): layer for layer in leaves})
    for block in list(backbone.modules()):
        for (conv, layer), (norm, follows) in pairwise([*block.named_children()]):
            if isinstance(layer, nn.Conv2d) and isinstance(follows, nn.BatchNorm2d):
                setattr(block, conv, fuse_conv_bn_eval(layer, follows))
                setattr(block, norm, nn.Identity())
    return backbone
