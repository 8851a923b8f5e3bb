"""Random views of whole batches of feature vectors.

Shapes: B batch, V views, D features.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from .images import ImageViews, called, uniform


@dataclass(eq=False)
class VectorViews:
    """Random views of batches of feature vectors; see `make_views`.

    Parameters
    ----------
    out_shape : (int,)
        Number of features.
    mean, std : Tensor of shape (D,)
    augmentation : object, callable or None
    """

    out_shape: tuple[int]
    mean: Tensor
    std: Tensor
    augmentation: object
    _constants: dict = field(default_factory=dict, init=False, repr=False)

    __getstate__ = ImageViews.__getstate__

    @torch.no_grad()
    def __call__(self, batch, n_views, generator):
        """Make independent random views of every sample.

        Parameters
        ----------
        batch : float32 Tensor of shape (B, D)
        n_views : int
        generator : torch.Generator
            On the batch's device; the only source of randomness.

        Returns
        -------
        float32 Tensor of shape (n_views, B, D)
            Standardised.
        """
        if self.augmentation is None:
            return self.plain(batch).repeat(n_views, 1, 1)
        if callable(self.augmentation):
            stack = batch.repeat(n_views, 1)
            stack = called(self.augmentation, stack, generator)
            return self.plain(stack).unflatten(0, (n_views, -1))
        noise, share = self.augmentation.noise, self.augmentation.replacement
        views = corrupt(self.plain(batch), n_views, share, generator)
        draws = torch.empty_like(views).normal_(0.0, noise, generator=generator)
        return views.add_(draws)

    @torch.no_grad()
    def plain(self, batch):
        """Standardise (B, D), without draws: what networks see at prediction."""
        if batch.device not in self._constants:
            pair = (self.mean.to(batch.device), self.std.to(batch.device))
            self._constants[batch.device] = pair
        mean, std = self._constants[batch.device]
        return (batch - mean) / std


def corrupt(batch, n_views, probability, generator):
    """Replace features by the same feature of other random samples of the batch.

    Every entry draws its own donor, which samples the features' marginals as SCARF
    does (Bahri et al., ICLR 2022). A batch of one has no donor and stays as it is.

    Parameters
    ----------
    batch : Tensor of shape (B, D)
    n_views : int
    probability : float
    generator : torch.Generator

    Returns
    -------
    Tensor of shape (n_views, B, D)
    """
    n_samples, n_features = batch.shape
    size = (n_views, n_samples, n_features)
    device = batch.device
    offset = torch.randint(
        1, max(n_samples, 2), size, generator=generator, device=device
    )
    donor = (torch.arange(n_samples, device=device)[:, None] + offset) % n_samples
    values = batch.gather(0, donor.flatten(0, 1)).view(size)
    return torch.where(uniform(size, generator, device) < probability, values, batch)
