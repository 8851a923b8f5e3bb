"""What a fit needs, made from the parameters and X before training."""

from contextlib import closing, contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from ._busy_cores import BusyCores
from ._checkpoint import Restarts
from ._engine.ambient import kept_memory
from ._engine.distributed import Group
from ._engine.inference import Inference
from ._engine.neighbors import Neighbors
from ._engine.samples import Samples
from ._engine.views import ImageViews, VectorViews
from ._interruption import Interrupt
from ._progress_bar import FitBar


@dataclass(frozen=True)
class Task:
    """Data, views, sizes and the progress of a fit."""

    group: Group
    samples: Samples
    views: ImageViews | VectorViews
    neighbors: Neighbors | None
    backbone: object  # resolved
    device: torch.device
    autocast_dtype: torch.dtype | None
    batch_size: int
    queue_size: int
    queue_dtype: torch.dtype
    cores: BusyCores
    bar: FitBar
    interrupt: Interrupt
    restarts: Restarts

    @contextmanager
    def running(self):
        """Handle Ctrl-C, keep freed memory for the next step, and close the bar."""
        with closing(self.bar), self.interrupt, kept_memory(self.device):
            yield

    def infer(self, inference: Inference, what: str) -> np.ndarray:
        """A quantity of the training samples (see `Inference`) that must be finite."""
        (value,) = inference.over(self.samples, self.views, what, group=self.group)
        _check_finite(torch.from_numpy(value))
        return value

    def infer_batches(self, inference: Inference, *what: str, rows):
        """A quantity of some samples, batch by batch, as tensors on the device."""
        for values in inference.batches(self.samples, self.views, *what, rows=rows):
            _check_finite(*values)
            yield values


def _check_finite(*values: torch.Tensor) -> None:
    if not all(value.isfinite().all() for value in values):
        raise FloatingPointError(
            "What the model infers is not finite. Try a lower `lr` or higher "
            "temperatures."
        )
