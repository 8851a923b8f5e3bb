"""A trained model in parts that need no code: its tensors, and what they do not say."""

import torch
from torch import nn

from ..backbones import build_backbone
from .model import ContrastiveMixture

__all__ = ["put_together", "take_apart"]


def take_apart(model: ContrastiveMixture):
    """The parts of a model.

    Returns
    -------
    tensors : dict of str to Tensor
        Copies, on the CPU.
    figures : dict
        "backbone", its name or None, "tau" and "kappa", and what the model has:
        "class_level" and "shared_head".

    Raises
    ------
    ValueError
        If the backbone keeps anything but tensors.
    """
    state = model.state_dict()
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"`backbone` must keep tensors only; {name!r} is none.")
    tensors = {name: v.cpu().contiguous().clone() for name, v in state.items()}
    figures = {
        "tau": model.tau,
        "kappa": model.kappa,
        "class_level": model.class_level,
        "shared_head": model.shared_head,
    }
    return tensors, {"backbone": model.backbone_name} | figures


def put_together(tensors, figures, shape, *, backbone=None) -> ContrastiveMixture:
    """The model that has these parts, in evaluation mode, on the CPU.

    Nothing is allocated before all names, shapes and types have been compared.

    Parameters
    ----------
    tensors, figures : dict
        From :func:`take_apart`, or from anyone. The model takes over the tensors.
    shape : tuple
        Of one view.
    backbone : nn.Module or callable, default=None
        Like the model's, if that has no name; its weights do not matter.

    Raises
    ------
    ValueError
        If the parts do not fit one another or the backbone.

    Notes
    -----
    To be called within `OwnDraws`: weights are drawn before they are replaced.
    """
    queue, omega = tensors["queue"], tensors.get("gating_prototypes")
    if queue.ndim != 3 or queue.numel() == 0:
        raise ValueError(f"its queue must hold embeddings; got {_words(queue)}.")
    size, n_experts, dim = queue.shape
    name = figures["backbone"]
    # Called once, and outside of `build`: a factory may do more than build.
    source = name or build_backbone(backbone, shape, device=None)

    def build(device):
        with torch.device(device):
            return ContrastiveMixture(
                build_backbone(source, shape, device=None),
                shape,
                n_experts=n_experts,
                embedding_dim=dim,
                queue_size=size,
                omega=omega if omega is None else torch.empty(n_experts, dim),
                tau=figures["tau"],
                kappa=figures["kappa"],
                # Files without these are of models with prototypes and own heads.
                class_level=figures.get("class_level", True),
                shared_head=figures.get("shared_head", False),
                backbone_name=name,
            )

    model = build("meta")  # has shapes and no memory
    _compare(model, tensors)
    if name is None:  # may keep more than its state, and share parts of it
        model = build("cpu")
        model.queue = model.queue.to(queue.dtype)
    model.load_state_dict(tensors, assign=name is not None)
    return model.to("cpu", memory_format=torch.channels_last).eval()


def _compare(model: nn.Module, tensors) -> None:
    needed, nothing = model.state_dict(), "nothing"
    needed["queue"] = needed["queue"].to(_half_or_single(tensors["queue"].dtype))
    for name in sorted(needed.keys() | tensors.keys()):
        need = _words(needed[name]) if name in needed else nothing
        found = _words(tensors[name]) if name in tensors else nothing
        if need != found:
            raise ValueError(f"its {name!r} is {found}, where {need} is needed.")


def _half_or_single(dtype):
    """The queue may be kept in either."""
    return dtype if dtype == torch.bfloat16 else torch.float32


def _words(tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
