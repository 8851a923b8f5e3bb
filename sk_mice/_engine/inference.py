"""What a trained model knows of samples, as fast as its networks can tell."""

import copy
import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from .model import ContrastiveMixture

__all__ = ["Inference", "in_pieces"]

# Samples at a time: in the sum over the queue, which is read once a batch, and in the
# networks, whose activations are to stay in a CPU's caches or fit into a GPU.
LARGEST_BATCH, BATCH_VALUES = 2048, 2**25
LARGEST_PIECE, SMALLEST_PIECE, PIECE_VALUES = 1024, 32, 2**16


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
            Any of "joint", the log-joint (B, K); "teacher", the teacher's embeddings
            (B, K, D); "features", the student's backbone's output (B, F); and, if
            there is a gate, "gating" embeddings (B, D). Nothing else is computed.

        Returns
        -------
        list of Tensor
            What is wanted, in that order.
        """
        model, known = self.model, {}
        if not {"joint", "teacher"}.isdisjoint(wanted):
            features = in_pieces(self.teacher, x)
            known["teacher"] = v = model.teacher.expert_embeddings(features)
        if not {"joint", "features", "gating"}.isdisjoint(wanted):
            known["features"] = features = in_pieces(self.student, x)
        g = None
        if "gating" in wanted or ("joint" in wanted and model.gate_learns):
            known["gating"] = g = model.student.gating_embeddings(features)
        if "joint" in wanted:
            f = model.student.expert_embeddings(features)
            known["joint"] = model.log_joint(f, v, g)
        return [known[name] for name in wanted]


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
