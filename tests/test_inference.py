"""Networks made ready for predictions say what they said before."""

import copy

import pytest
import torch
from torch import nn

from sk_mice._engine.backbones import build_backbone
from sk_mice._engine.inference import SMALLEST_PIECE, folded, in_pieces

CPU = torch.device("cpu")


def trained(name, shape):
    """A backbone whose batch norms have something to say."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = build_backbone(name, shape, device=CPU)
        for module in backbone.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias)
        with torch.no_grad():
            backbone(torch.randn(16, *shape))  # statistics
    return backbone.eval()


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("resnet-small-4", (1, 16, 16)),
        ("resnet18", (3, 32, 32)),
        ("resnet18-maxpool", (4, 32, 32)),
        ("resnet50", (3, 80, 80)),
        ("mlp", (7,)),
    ],
)
def test_folded_networks_make_the_same_features_without_batch_norm(name, shape):
    backbone = trained(name, shape)
    before = copy.deepcopy(backbone.state_dict())
    ready = folded(backbone)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in ready.modules())
    x = torch.randn(5, *shape)
    with torch.no_grad():
        torch.testing.assert_close(ready(x), backbone(x), rtol=1e-4, atol=1e-4)
    for key, value in backbone.state_dict().items():
        assert torch.equal(value, before[key]), key


@pytest.mark.parametrize("n", [1, SMALLEST_PIECE, 2 * SMALLEST_PIECE + 1])
@pytest.mark.parametrize("shape", [(3, 40, 40), (2,)])
def test_pieces_are_put_together_in_order(n, shape):
    x = torch.randn(n, *shape)
    calls = []

    def network(piece):
        calls.append(len(piece))
        return piece.flatten(1)

    assert torch.equal(in_pieces(network, x), x.flatten(1))
    assert max(calls) <= max(SMALLEST_PIECE, n if shape == (2,) else 0)
