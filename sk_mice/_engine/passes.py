"""Training of one parameter alone, until it or the objective settles.

The appendix's "extra end-of-epoch training only on mu with stochastic gradient ascent".
"""

import torch

__all__ = ["until_settled"]

MAX_PASSES = 20  # appendix
# The appendix names two criteria, the prototypes' norm and the change of the objective,
# and no figures.
SETTLED_ROWS = 1e-3  # largest distance that a row, as a unit vector, moves in a pass
SETTLED_LOSS = 1e-4  # change of the loss from pass to pass, in nats


def until_settled(parameter, batches, loss, **sgd) -> int:
    """Pass over the data with SGD on one parameter, all else fixed.

    Parameters
    ----------
    parameter : nn.Parameter of shape (K, D)
        Its rows are used as unit vectors.
    batches : iterable
        One pass over the data each time that it is iterated over.
    loss : callable
        Maps a batch to its mean loss.
    **sgd : dict
        Options of :class:`torch.optim.SGD`.

    Returns
    -------
    int
        How many passes there were, at most 20.
    """
    optimizer = torch.optim.SGD([parameter], **sgd)
    previous = None
    n_passes, settled = 0, False
    while n_passes < MAX_PASSES and not settled:
        before = _directions(parameter)
        losses = []
        for batch in batches:
            value = loss(batch)
            (parameter.grad,) = torch.autograd.grad(value, [parameter])
            optimizer.step()
            losses.append(value.detach())
        mean = torch.stack(losses).mean()
        moved = (_directions(parameter) - before).norm(dim=1).max()
        settled = bool(moved < SETTLED_ROWS)
        if previous is not None:
            settled = settled or bool((mean - previous).abs() < SETTLED_LOSS)
        previous = mean
        n_passes += 1
    parameter.grad = None
    return n_passes


def _directions(parameter):
    return torch.nn.functional.normalize(parameter.detach(), dim=1)
