"""What a trained model knows of samples, as fast as its networks can tell."""

import copy
import itertools
import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from .model import ContrastiveMixture

__all__ = ["Inference", "in_pieces", "log_partition_bounds", "queue_moments"]

# Samples at a time: in the sum over the queue, which is read once a batch, and in the
# networks, whose activations are to stay in a CPU's caches or fit into a GPU.
LARGEST_BATCH, BATCH_VALUES = 2048, 2**25
LARGEST_PIECE, SMALLEST_PIECE, PIECE_VALUES = 1024, 32, 2**16
# Nats by which bounds must tell experts apart: bfloat16 rounds the sum over the queue.
MARGIN = 0.01


class Inference:
    """A model's networks, made ready; the model is only read.

    Predictions of the model as it is now: of a model that is trained on, make another.

    Parameters
    ----------
    model : ContrastiveMixture
        In evaluation mode.
    """

    def __init__(self, model: ContrastiveMixture):
        self.model = model
        self.student, self.teacher = model.student.backbone, model.teacher.backbone
        if model.backbone is not None:  # of the user's own little is known
            self.student, self.teacher = folded(self.student), folded(self.teacher)

    def over(self, samples, views, *wanted: str) -> list[np.ndarray]:
        """What the model knows of all samples.

        Parameters
        ----------
        samples : Samples
        views : ImageViews or VectorViews
            Of which the plain ones are taken.
        *wanted : str
            See :meth:`__call__`.

        Returns
        -------
        list of ndarray
            What is wanted, for all samples in order; float32, but for labels.
        """
        moments = None
        dim = self.model.queue.shape[2]
        if (
            "label" in wanted and len(samples) > dim
        ):  # as they cost as much as D samples
            moments = queue_moments(self.model.queue)
        parts = []
        for batch in samples.in_order(self.batch_size(views.out_shape)):
            known = self(views.plain(batch), *wanted, moments=moments)
            parts.append([value.cpu() for value in known])
        return [torch.cat(columns).numpy() for columns in zip(*parts, strict=True)]

    def batch_size(self, shape) -> int:
        """Samples of a shape that may be given at a time: memory is bounded."""
        largest = max(math.prod(shape), math.prod(self.model.queue.shape[1:]))
        return min(LARGEST_BATCH, max(SMALLEST_PIECE, BATCH_VALUES // largest))

    @torch.inference_mode()
    def __call__(self, x: Tensor, *wanted: str, moments=None) -> list[Tensor]:
        """What the model knows of a batch.

        Parameters
        ----------
        x : Tensor of shape (B, *shape)
        *wanted : str
            Any of "joint", the log-joint (B, K); "label", its largest expert (B,);
            "teacher", the teacher's embeddings (B, K, D); "features", the student's
            backbone's output (B, F); and, if there is a gate, "gating" embeddings
            (B, D). Nothing else is computed.
        moments : tuple of Tensor, default=None
            From :func:`queue_moments`; with them "label" is quicker.

        Returns
        -------
        list of Tensor
            What is wanted, in that order.
        """
        model, known = self.model, {}
        inferred = not {"joint", "label"}.isdisjoint(wanted)
        if inferred or "teacher" in wanted:
            features = in_pieces(self.teacher, x)
            known["teacher"] = v = model.teacher.expert_embeddings(features)
        if inferred or not {"features", "gating"}.isdisjoint(wanted):
            known["features"] = features = in_pieces(self.student, x)
        g = None
        if "gating" in wanted or (inferred and model.gate_learns):
            known["gating"] = g = model.student.gating_embeddings(features)
        if inferred:
            f = model.student.expert_embeddings(features)
        if "joint" in wanted:
            known["joint"] = model.log_joint(f, v, g)
        if "label" in wanted:
            known["label"] = self._labels(f, v, g, moments)
        return [known[name] for name in wanted]

    def _labels(self, f, v, g, moments) -> Tensor:
        """The largest of the log-joint: where bounds tell, without the whole queue."""
        model = self.model
        if moments is None:
            return model.log_joint(f, v, g).argmax(dim=1)

        def bounds(x, positive, queue):
            return log_partition_bounds(x, positive, len(queue), *moments)

        most, least = model.log_joint(f, v, g, bounds)
        labels = least.argmax(dim=1, keepdim=True)
        rivals = most.scatter(1, labels, -math.inf).amax(dim=1)
        known = least.gather(1, labels).squeeze(1) > rivals + MARGIN
        labels = labels.squeeze(1)
        rest = torch.nonzero(~known).squeeze(1)  # also what is not finite
        if len(rest):
            gating = None if g is None else g[rest]
            labels[rest] = model.log_joint(f[rest], v[rest], gating).argmax(dim=1)
        return labels


# ------------------------------------------------- bounds of the log-partition function


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
    """What `objective.log_partition` lies between, at the cost of a queue of D.

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


# ------------------------------------------------------------------------ networks


def in_pieces(network, x: Tensor) -> Tensor:
    """What a network, in evaluation mode, makes of many samples.

    On a CPU in pieces that its caches can hold, which is two to three times as fast.
    """
    n = LARGEST_PIECE
    if x.device.type == "cpu":
        n = min(n, max(SMALLEST_PIECE, PIECE_VALUES // x[0].numel()))
    return torch.cat([network(piece) for piece in x.split(n)])


def folded(backbone: nn.Module) -> nn.Module:
    """A copy of a residual network whose convolutions do the batch norms' work, too.

    Batch norm in evaluation mode is one more linear map after the convolution's.
    """
    backbone = copy.deepcopy(backbone)
    for block in list(backbone.modules()):
        for conv, norm in _pairs(block):
            fused = fuse_conv_bn_eval(getattr(block, conv), getattr(block, norm))
            setattr(block, conv, fused)
            setattr(block, norm, nn.Identity())
    return backbone


def _pairs(block: nn.Module):
    """Names of convolutions with those of the batch norms that follow them at once."""
    names = [name for name, _ in block.named_children()]
    if not isinstance(block, nn.Sequential):  # a block of ours or of torchvision's
        found = [(name, name.replace("conv", "bn")) for name in names]
    else:
        found = list(itertools.pairwise(names))
    for first, second in found:
        conv, norm = getattr(block, first), getattr(block, second, None)
        if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
            yield first, second
