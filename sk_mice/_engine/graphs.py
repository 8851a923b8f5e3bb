"""The passes of a training step as CUDA graphs.

A step of a small network launches hundreds of kernels, and a fast GPU ends each of them
before Python has launched the next. A graph launches all of them at once.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

MOST = 8  # graphs of a stage; batches of further sizes are run without one
N_WARM_UPS = 2  # calls before a capture, in which libraries choose their kernels


class Replayed:
    """A function that sets the gradients of a model, replayed by CUDA graphs.

    It maps (views, q) to a tuple of tensors, and must neither wait for the device nor
    draw random numbers.

    There is one graph for each size of a batch, captured when that size first comes.
    The tensors of the model must stay where they are in memory, and the code must take
    the same branches. Temperatures may change: each pair of them has its own graphs.
    Modules and weights may change between epochs (:meth:`forget_if_changed`).
    """

    def __init__(self, function: Callable, model: nn.Module):
        self.function, self.model = function, model
        self.modules = _modules(model)
        self.pool = torch.cuda.graph_pool_handle()
        self.graphs: dict[tuple, tuple] = {}
        self.last: tuple | None = None  # the key of the graph that last set gradients

    def forget_if_changed(self) -> None:
        """Forget the graphs if the modules or weights have changed since."""
        modules = _modules(self.model)
        if modules != self.modules:
            self.modules, self.last = modules, None
            self.graphs.clear()

    def __call__(self, views: Tensor, q: Tensor | None) -> tuple[Tensor, ...]:
        given = (views,) if q is None else (views, q)
        shapes = tuple(tensor.shape for tensor in given)
        key = shapes, self.model.tau, self.model.kappa
        if key != self.last:  # not every graph sets the gradients of all weights
            self.model.zero_grad()
            self.last = key
        if key not in self.graphs:
            if len(self.graphs) == MOST:
                return self.function(views, q)
            self.graphs[key] = self._capture(*given)
        graph, inputs, outputs, gradients = self.graphs[key]
        for own, new in zip(inputs, given, strict=True):
            own.copy_(new)
        graph.replay()
        for weight, gradient in gradients:
            weight.grad = gradient
        return tuple(output.clone() for output in outputs)

    def _capture(self, views: Tensor, q: Tensor | None = None) -> tuple:
        """A graph, its inputs and outputs, and weights with their gradients."""
        views, q = views.clone(), None if q is None else q.clone()
        statistics = [
            buffer
            for side in (self.model.student, self.model.teacher)
            for buffer in side.buffers()
        ]
        before = [buffer.clone() for buffer in statistics]
        try:
            stream = torch.cuda.Stream(views.device)
            stream.wait_stream(torch.cuda.current_stream(views.device))
            with torch.cuda.stream(stream):
                for _ in range(N_WARM_UPS):
                    self.function(views, q)
            torch.cuda.current_stream(views.device).wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            # Other threads may use the device meanwhile.
            with torch.cuda.graph(
                graph, self.pool, stream, capture_error_mode="thread_local"
            ):
                outputs = self.function(views, q)
        finally:
            for buffer, value in zip(statistics, before, strict=True):
                buffer.copy_(value)
        gradients = [
            (weight, weight.grad)
            for weight in self.model.parameters()
            if weight.grad is not None
        ]
        inputs = (views,) if q is None else (views, q)
        return graph, inputs, outputs, gradients


def _modules(model: nn.Module) -> list:
    """All modules, each with its mode, and where its weights are and which train."""
    return [
        (
            module,
            module.training,
            [(w.data_ptr(), w.requires_grad) for w in module.parameters(False)],
        )
        for module in model.modules()
    ]
