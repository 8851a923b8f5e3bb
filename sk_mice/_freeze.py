"""Which blocks of a network train, if the others are frozen."""

from collections.abc import Iterator
from itertools import chain

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

NORMS = _NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm
LISTS = nn.Sequential, nn.ModuleList


def trained_blocks(network: nn.Module, freeze) -> tuple[str, ...] | None:
    """Names of the modules that train under a value of `freeze`; None is everything.

    Raises ValueError unless some blocks are frozen, and something is left to train.
    """
    if freeze is None:
        return None
    blocks = blocks_of(network)
    n = len(blocks)
    if n < 2:
        raise ValueError(
            f"`freeze`={freeze!r} needs a `backbone` of at least two blocks with "
            f"weights; {type(network).__name__} has {n}."
        )
    stop = -1 if freeze == "all but last" else int(freeze)
    if not 0 < abs(stop) < n:
        firsts = ", ".join(names[0] for names in blocks)
        raise ValueError(
            f"`freeze` must be from 1 to {n - 1}, or from {1 - n} to -1, so that some "
            f"of the {n} blocks of the `backbone` are frozen and some are not; got "
            f"{freeze}. The blocks begin at: {firsts}."
        )
    names = tuple(chain.from_iterable(blocks[stop:]))
    parts = map(network.get_submodule, names)
    weights = chain.from_iterable(part.parameters() for part in parts)
    if not any(weight.requires_grad for weight in weights):
        raise ValueError(
            f"`freeze`={freeze!r} must leave something to train; the weights of the "
            f"`backbone` in {', '.join(names)} have `requires_grad=False`."
        )
    return names


def blocks_of(network: nn.Module) -> list[list[str]]:
    """The blocks of a network, in order, each as the names of its modules.

    A block is a child of the network that has weights. Of a network with one such child
    it is a child of that. If exactly one of them is a `Sequential` or a `ModuleList`,
    its children are blocks, too; several are a block each, as the stages of a residual
    network are. Normalisation belongs to the block before it.
    """
    name, children = "", list(_children(network))
    while len(children) == 1 and not isinstance(children[0][1], NORMS):
        name, inner = children[0]
        within = list(_children(inner, name))
        if not within:  # a layer
            break
        children = within
    lists = [c for c in children if isinstance(c[1], LISTS) and not _is_norm(c[1])]
    if len(lists) == 1:
        at = children.index(lists[0])
        name, inner = lists[0]
        children[at : at + 1] = _children(inner, name)
    blocks: list[list[str]] = []
    for name, child in children:
        if blocks and _is_norm(child):
            blocks[-1].append(name)
        else:
            blocks.append([name])
    return blocks


def _children(module, prefix="") -> Iterator[tuple[str, nn.Module]]:
    """Children with weights, by their full names."""
    start = f"{prefix}." if prefix else ""
    for name, child in module.named_children():
        if any(True for _ in child.parameters()):
            yield start + name, child


def _is_norm(module) -> bool:
    """Whether all of a module's weights are of normalisation."""
    layers = (m for m in module.modules() if any(True for _ in m.parameters(False)))
    return all(isinstance(layer, NORMS) for layer in layers)
