"""MoCo, the special case."""

from functools import partial

import numpy as np
import pytest
import shared
import torch
from shared import info_nce, same_generators
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from sk_mice import MoCo
from sk_mice._engine.trainer import Trainer
from sk_mice.backbones import MLP, SmallResNet

IMAGES = load_digits(n_class=4).images[:160]
# Built once: all fits begin with the same weights.
torch.manual_seed(0)
BACKBONE = SmallResNet(8, blocks=(1, 1)).build((1, 16, 16))
SIZES = {"embedding_dim": 16, "max_epochs": 3, "batch_size": 64}
tiny = partial(shared.tiny, MoCo, backbone=BACKBONE, **SIZES)


@pytest.fixture(scope="module")
def fitted():
    return tiny().fit(IMAGES)


@parametrize_with_checks([MoCo(backbone=MLP(16), freeze=-1, max_epochs=2)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_embeddings_are_unit_vectors(fitted):
    v = fitted.transform(IMAGES)
    assert v.shape == (160, 16)
    assert v.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(v, axis=1), 1, rtol=1e-5)
    assert fitted.n_iter_ == 3
    assert {row["stage"] for row in fitted.history_} == {"moco"}
    assert list(fitted.get_feature_names_out()[:2]) == ["moco0", "moco1"]


def test_its_loss_is_info_nce(monkeypatch):
    # Theorem 3: MiCE under A3 to A5 has MoCo's objective, here in a real training.
    losses = []
    learn = Trainer._learn

    def remember(net, views, *args):
        model = net.module_
        buffers = {k: v.clone() for k, v in model.named_buffers()}
        with torch.no_grad():
            v = model.teacher.expert_embeddings(model.teacher.backbone(views[0]))
            f = model.student.expert_embeddings(model.student.backbone(views[1]))
            value = info_nce(f[:, 0], v[:, 0], model.queue[:, 0], model.tau)
        for name, buffer in model.named_buffers():
            buffer.copy_(buffers[name])
        loss, joint, v = learn(net, views, *args)
        losses.append((joint.mean().item(), value.mean().item()))
        return loss, joint, v

    monkeypatch.setattr(Trainer, "_learn", remember)
    tiny(precision="float32", tau=0.3).fit(IMAGES)
    ours, expected = map(np.array, zip(*losses, strict=True))
    np.testing.assert_allclose(ours, expected, rtol=1e-5)


def test_score_is_the_log_probability_of_the_positive():
    moco = tiny(precision="float32").fit(IMAGES)
    (features,) = moco._infer(IMAGES, "features")
    with torch.no_grad():
        f = moco._model.student.expert_embeddings(torch.tensor(features))[:, 0]
        v = torch.tensor(moco.transform(IMAGES))
        expected = info_nce(f, v, moco._model.queue[:, 0].float(), moco.tau)
    assert moco.score(IMAGES) == pytest.approx(expected.mean().item(), rel=1e-3)


@pytest.mark.parametrize("name", ["device_", "backbone_"])
def test_parts_of_the_model_need_a_fit(name):
    with pytest.raises(NotFittedError):
        getattr(MoCo(), name)


def test_warm_start_and_repeatability(fitted):
    first, second = fitted.transform(IMAGES), tiny().fit(IMAGES)
    np.testing.assert_array_equal(first, second.transform(IMAGES))
    second.set_params(warm_start=True, lr=0.01).fit(IMAGES)
    assert not np.array_equal(first, second.transform(IMAGES))
    with pytest.raises(ValueError, match=r"^`embedding_dim` must be as in .* got 8\.$"):
        second.set_params(embedding_dim=8).fit(IMAGES)


class Late(torch.nn.Linear):
    """Draws in its later steps alone, or in evaluation mode."""

    def __init__(self, training):
        super().__init__(6, 8)
        self.drops, self.n_calls = training, 0

    def forward(self, x):
        x = super().forward(x)
        self.n_calls += 1
        if self.training != self.drops or (self.training and self.n_calls < 4):
            return x
        return torch.nn.functional.dropout(x, 0.5)


@pytest.mark.parametrize("training", [True, False])
def test_own_networks_never_draw_from_the_global_generator(training):
    X = np.random.default_rng(0).standard_normal((128, 6))
    torch.manual_seed(0)
    backbone, found = Late(training), []
    for seed in (1, 2):
        torch.manual_seed(seed)
        with same_generators():
            found.append(tiny(backbone=backbone).fit(X).transform(X))
    np.testing.assert_array_equal(*found)
