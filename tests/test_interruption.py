"""What is left of a fit that does not come to its end."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from skorch.callbacks import Callback

from sk_mice import MiCEClustering, MoCo
from sk_mice._engine.backbones import SmallResNet

# The fits here are too short to separate anything: a cluster may well be empty.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

IMAGES = load_digits(n_class=4).images[:160]
torch.manual_seed(0)
BACKBONE = SmallResNet(1, width=8, blocks=(1, 1))
OPTIONS = {"backbone": BACKBONE, "batch_size": 64, "flip": False, "random_state": 0}


class Raise(Callback):
    """Raises an error in the second batch of an epoch, counted over all stages."""

    def __init__(self, epoch, error=KeyboardInterrupt):
        self.epoch, self.error = epoch, error
        self.count = 0

    def on_epoch_begin(self, net, **kwargs):
        self.count += 1
        self.batches = 0

    def on_batch_end(self, net, **kwargs):
        self.batches += 1
        if self.count == self.epoch and self.batches == 2:
            raise self.error


class EndAfter(Callback):
    """Ends every stage after so many epochs, as early stopping does."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == self.epoch:
            raise KeyboardInterrupt


def mice(**options):
    return MiCEClustering(4, max_epochs=6, init_share=0.5, **OPTIONS | options)


def assert_usable(estimator, n_epochs):
    assert estimator.n_iter_ == len(estimator.history_) == n_epochs
    np.testing.assert_array_equal(estimator.labels_, estimator.predict(IMAGES))
    assert np.isfinite(estimator.predict_proba(IMAGES)).all()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_before_training_is_not_covered_by_another(error):
    class AtOnce(Callback):
        def on_train_begin(self, net, **kwargs):
            raise error

    with pytest.raises(error):
        mice(callbacks=[AtOnce()]).fit(IMAGES)


@pytest.mark.parametrize("epoch", [2, 4, 5, 6])  # of MoCo, of the first and second EM
def test_ctrl_c_leaves_the_last_whole_epoch(epoch):
    estimator = mice(callbacks=[Raise(epoch)])
    with pytest.warns(ConvergenceWarning, match=f"{epoch - 1} whole epochs"):
        assert estimator.fit(IMAGES) is estimator
    assert_usable(estimator, epoch - 1)


def test_ctrl_c_before_the_end_of_the_first_epoch_leaves_nothing():
    estimator = mice(callbacks=[Raise(1)])
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(IMAGES)
    with pytest.raises(NotFittedError):
        estimator.predict(IMAGES)


def test_an_interrupted_restart_does_not_displace_a_whole_one():
    whole = mice().fit(IMAGES)
    estimator = mice(n_init=3, callbacks=[Raise(6 + 3)])
    with pytest.warns(ConvergenceWarning, match="6 whole epochs"):
        estimator.fit(IMAGES)
    assert_usable(estimator, 6)
    np.testing.assert_array_equal(estimator.labels_, whole.labels_)
    assert not hasattr(estimator, "stability_")


def test_a_loss_that_is_not_finite_is_raised_and_leaves_the_last_finite_state():
    class Spoil(Raise):
        def on_batch_end(self, net, **kwargs):
            if self.count == self.epoch:
                net.module_.student.experts.weight.data.fill_(torch.nan)

    estimator = mice(callbacks=[Spoil(5)])
    with pytest.raises(FloatingPointError, match=r"not finite in epoch"):
        estimator.fit(IMAGES)
    assert_usable(estimator, 4)


def test_an_error_of_a_callback_is_not_taken_for_an_interruption():
    with pytest.raises(ZeroDivisionError):
        mice(callbacks=[Raise(3, ZeroDivisionError)]).fit(IMAGES)


def test_early_stopping_ends_a_stage_and_not_the_fit():
    estimator = mice(callbacks=[EndAfter(1)]).fit(IMAGES)
    assert [row["stage"] for row in estimator.history_] == ["moco", "em", "em"]
    assert_usable(estimator, 3)


def test_ctrl_c_leaves_the_last_whole_epoch_of_moco():
    moco = MoCo(max_epochs=4, callbacks=[Raise(3)], **OPTIONS)
    with pytest.warns(ConvergenceWarning, match="2 whole epochs"):
        moco.fit(IMAGES)
    assert moco.n_iter_ == 2
    same = MoCo(max_epochs=4, callbacks=[EndAfter(2)], **OPTIONS).fit(IMAGES)
    np.testing.assert_array_equal(moco.transform(IMAGES), same.transform(IMAGES))
