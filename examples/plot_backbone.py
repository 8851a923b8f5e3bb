"""
Your own network
================

``backbone`` takes any module that maps images (B, C, H, W) to features (B, F). MiCE
adds the heads, and trains a copy. The module that is passed stays as it is.
"""

# %%
# A small network of three convolutions, whose features are averages over the maps of
# the last one. Views of small images have at least 16 pixels a side.

from pathlib import Path

import torch
from torch import nn

from sk_mice import MiCEClustering
from sk_mice.backbones import SmallResNet
from sk_mice.datasets import load_digits
from sk_mice.inspection import ClusterGalleryDisplay
from sk_mice.metrics import clustering_accuracy_score


class ThreeConvolutions(nn.Sequential):
    def __init__(self, width=32):
        layers = []
        for n_in, n_out in [(1, width), (width, 2 * width), (2 * width, 4 * width)]:
            layers += [
                nn.Conv2d(n_in, n_out, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(n_out),
                nn.ReLU(),
            ]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


print(ThreeConvolutions()(torch.zeros(2, 1, 16, 16)).shape)

# %%
# A factory, such as the class, makes a new network for each fit, whose weights follow
# ``random_state``. An object of ``sk_mice.backbones`` has parameters that a search can
# set. If the backbone is a module, training starts from its weights.

X, y, _ = load_digits()
X, y = X[y < 5], y[y < 5]
settings = {"max_epochs": 20, "batch_size": 64, "random_state": 0}
backbones = {
    "ThreeConvolutions": ThreeConvolutions,
    "SmallResNet(8)": SmallResNet(8),
}
fits = {}
for name, backbone in backbones.items():
    mice = fits[name] = MiCEClustering(5, backbone=backbone, **settings).fit(X)
    n_weights = sum(weights.numel() for weights in mice.backbone_.parameters())
    accuracy = clustering_accuracy_score(y, mice.labels_)
    seconds = sum(row["seconds"] for row in mice.history_)
    print(f"{name:18}{n_weights:8,} weights  {accuracy:.3f} in {seconds:.0f} s")

# %%
# ``backbone_`` is the trained network. It can be the start of another fit, here with
# more clusters.

settings |= {"max_epochs": 10, "lr": 0.1}
trained = fits["ThreeConvolutions"].backbone_
again = MiCEClustering(8, backbone=trained, **settings).fit(X)
gallery = ClusterGalleryDisplay.from_estimator(again, X, y, n_images=16, cmap="gray_r")

folder = Path(globals().get("__file__", "")).parent  # a notebook has no file
path = folder / "output" / "backbone.png"
path.parent.mkdir(exist_ok=True)
gallery.figure_.savefig(path, dpi=150)
print(f"The picture is in {path}")
