"""What a trained model knows of samples, as fast as its networks can tell."""

import copy
import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from . import objective
from .model import ContrastiveMixture

__all__ = ["Inference", "in_pieces"]

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
        self._moments = None
        self.student, self.teacher = model.student.backbone, model.teacher.backbone
        if model.backbone_name is not None:  # of the user's own little is known
            self.student, self.teacher = folded(self.student), folded(self.teacher)

    def batch_size(self, shape) -> int:
        """Samples of a shape that may be given at a time: memory is bounded."""
        largest = max(math.prod(shape), math.prod(self.model.queue.shape[1:]))
        return min(LARGEST_BATCH, max(SMALLEST_PIECE, BATCH_VALUES // largest))

    @torch.inference_mode()
    def __call__(self, x: Tensor, *wanted: str) -> list[Tensor]:
        """What the model knows of x.

        Parameters
        ----------
        x : Tensor of shape (B, *shape)
        *wanted : str
            Any of "joint", the log-joint (B, K); "label", its largest expert (B,);
            "teacher", the teacher's embeddings (B, K, D); "features", the student's
            backbone's output (B, F); and, if there is a gate, "gating" embeddings
            (B, D). Nothing else is computed.

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
            known["label"] = self._labels(f, v, g)
        return [known[name] for name in wanted]

    def _labels(self, f, v, g) -> Tensor:
        """The largest of the log-joint: where bounds tell, without the whole queue."""
        model = self.model
        if self._moments is None:
            if len(f) <= f.shape[2]:  # they cost as much as D samples
                return model.log_joint(f, v, g).argmax(dim=1)
            self._moments = objective.queue_moments(model.queue)
        most, least = model.log_joint(f, v, g, self._bounds)
        labels = least.argmax(dim=1, keepdim=True)
        rivals = most.scatter(1, labels, -math.inf).amax(dim=1)
        known = least.gather(1, labels).squeeze(1) > rivals + MARGIN
        labels = labels.squeeze(1)
        rest = torch.nonzero(~known).squeeze(1)  # also what is not finite
        if len(rest):
            gating = None if g is None else g[rest]
            labels[rest] = model.log_joint(f[rest], v[rest], gating).argmax(dim=1)
        return labels

    def _bounds(self, x, positive, queue):
        return objective.log_partition_bounds(x, positive, len(queue), *self._moments)


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
        found = itertools.pairwise(names)
    for first, second in found:
        conv, norm = getattr(block, first), getattr(block, second, None)
        if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
            yield first, second
