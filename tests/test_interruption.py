"""What is left of a fit that does not come to its end."""

import re
import signal
import sys
import threading
from functools import cache, partial

import numpy as np
import pytest
import torch
from shared import RaiseAt, callback, raising, short_fits
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from skorch.callbacks import Callback, Checkpoint, EarlyStopping

from sk_mice import ClassificationEM, MiCEClustering, MoCo, _mice
from sk_mice._engine import trainer
from sk_mice._interruption import ended_by_ctrl_c
from sk_mice._words import count
from sk_mice.backbones import SmallResNet

pytestmark = short_fits

IMAGES = load_digits(n_class=4).images[:96]
torch.manual_seed(0)
BACKBONE = SmallResNet(4, blocks=(1, 1)).build((1, 16, 16))
OPTIONS = {"backbone": BACKBONE, "batch_size": 40, "random_state": 0}


class EndAfter(Callback):
    """Ends every stage after so many epochs, as early stopping does."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == self.epoch:
            raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def half_of_the_epochs_for_moco(monkeypatch):
    """Three epochs of MoCo, two and one of EM, in six."""
    monkeypatch.setattr(MiCEClustering, "_init_share", 0.5)


def mice(**options):
    return MiCEClustering(4, **{"max_epochs": 6} | OPTIONS | options)


def assert_usable(estimator, n_epochs):
    assert estimator.n_iter_ == len(estimator.history_) == n_epochs
    np.testing.assert_array_equal(estimator.labels_, estimator.predict(IMAGES))
    assert np.isfinite(estimator.predict_proba(IMAGES)).all()


@cache
def whole():
    """A fit that nothing ends, which no test changes."""
    return mice().fit(IMAGES)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_before_training_is_not_covered_by_another(error):
    at_once = callback(on_train_begin=raising(error))
    with pytest.raises(error):
        mice(callbacks=[at_once]).fit(IMAGES)


@pytest.mark.parametrize("epoch", [2, 4, 5, 6])  # of MoCo, of the first and second EM
def test_ctrl_c_leaves_the_last_whole_epoch(epoch):
    estimator = mice(callbacks=[RaiseAt(epoch)])
    with pytest.warns(
        ConvergenceWarning, match=rf"of {count(epoch - 1, 'whole epoch')}\."
    ):
        assert estimator.fit(IMAGES) is estimator
    assert_usable(estimator, epoch - 1)


def test_ctrl_c_before_the_end_of_the_first_epoch_leaves_nothing():
    estimator = mice(callbacks=[RaiseAt(1)])
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(IMAGES)
    with pytest.raises(NotFittedError):
        estimator.predict(IMAGES)


def test_an_interrupted_restart_does_not_displace_a_whole_one(monkeypatch):
    monkeypatch.setattr(_mice, "STEADY", 1)
    steady = mice().fit(IMAGES)
    estimator = mice(n_init=3, callbacks=[RaiseAt(6 + 3)])
    with pytest.warns(ConvergenceWarning, match="6 whole epochs"):
        estimator.fit(IMAGES)
    assert_usable(estimator, 6)
    np.testing.assert_array_equal(estimator.labels_, steady.labels_)
    assert estimator.converged_ is steady.converged_ is True
    assert not hasattr(estimator, "stability_")
    with pytest.warns(ConvergenceWarning, match="5 whole epochs"):
        assert not mice(callbacks=[RaiseAt(6)]).fit(IMAGES).converged_


def test_an_error_of_a_callback_is_not_taken_for_an_interruption():
    with pytest.raises(ZeroDivisionError):
        mice(callbacks=[RaiseAt(3, ZeroDivisionError)]).fit(IMAGES)


def test_early_stopping_ends_a_stage_and_not_the_fit():
    estimator = mice(callbacks=[EndAfter(1)]).fit(IMAGES)
    assert [row["stage"] for row in estimator.history_] == ["moco", "em", "em"]
    assert_usable(estimator, 3)


def test_ctrl_c_leaves_the_last_whole_epoch_of_moco():
    moco = MoCo(max_epochs=4, callbacks=[RaiseAt(3)], **OPTIONS)
    with pytest.warns(ConvergenceWarning, match="2 whole epochs"):
        moco.fit(IMAGES)
    assert moco.n_iter_ == 2
    same = MoCo(max_epochs=4, callbacks=[EndAfter(2)], **OPTIONS).fit(IMAGES)
    np.testing.assert_array_equal(moco.transform(IMAGES), same.transform(IMAGES))


# ------------------------------------------------------------------ the real signal


def ctrl_c():
    signal.raise_signal(signal.SIGINT)


class PressAfter(Callback):
    """Presses Ctrl-C at the end of an epoch, counted over all stages."""

    def __init__(self, epoch):
        self.epoch, self.count = epoch, 0

    def on_epoch_end(self, net, **kwargs):
        self.count += 1
        if self.count == self.epoch:
            ctrl_c()


class PressIn(RaiseAt):
    """Presses Ctrl-C in the second batch of an epoch, counted over all stages."""

    def on_batch_end(self, net, **kwargs):
        self.batches += 1
        if self.count == self.epoch and self.batches == 2:
            ctrl_c()


def before_the_partition(function, monkeypatch):
    """Have something called each time before features are clustered."""
    fit = ClassificationEM.fit

    def called(*args, **kwargs):
        function()
        return fit(*args, **kwargs)

    monkeypatch.setattr(ClassificationEM, "fit", called)


@pytest.mark.parametrize("epoch", [1, 3, 4, 5])  # of MoCo, its last, of EM, its last
@pytest.mark.parametrize("press", [PressAfter, PressIn])
def test_a_real_ctrl_c_ends_the_fit_and_not_the_stage(epoch, press):
    if (press, epoch) == (PressIn, 1):  # the first epoch: there is nothing to keep
        with pytest.raises(KeyboardInterrupt):
            mice(callbacks=[press(epoch)]).fit(IMAGES)
        return
    n_whole = epoch if press is PressAfter else epoch - 1
    estimator = mice(callbacks=[press(epoch)])
    with pytest.warns(
        ConvergenceWarning, match=rf"of {count(n_whole, 'whole epoch')}\."
    ):
        estimator.fit(IMAGES)
    assert_usable(estimator, n_whole)
    # As if it had been meant to end there.
    ends = {1: [1, 0], 2: [2, 0], 3: [3, 0], 4: [3, 1], 5: [3, 2]}[n_whole]
    stages = [row["stage"] for row in estimator.history_]
    assert stages == ["moco"] * ends[0] + ["em"] * ends[1]


def without_reader(text):
    """What writing raises in a process whose reader, such as ``tee``, has ended."""
    raise BrokenPipeError


@pytest.mark.parametrize("verbose", [0, 1])
def test_ctrl_c_leaves_a_model_if_it_also_ends_the_reader(verbose, monkeypatch):
    class EndsAll(PressIn):
        def on_batch_end(self, net, **kwargs):
            monkeypatch.setattr(sys.stderr, "write", without_reader)
            super().on_batch_end(net, **kwargs)

    estimator = mice(callbacks=[EndsAll(2)], verbose=verbose)
    with pytest.warns(ConvergenceWarning, match="1 whole epoch"):
        estimator.fit(IMAGES)
    assert_usable(estimator, 1)


def test_ctrl_c_after_the_last_epoch_changes_nothing():
    estimator = mice(callbacks=[PressAfter(6)]).fit(IMAGES)
    np.testing.assert_array_equal(estimator.labels_, whole().labels_)


@pytest.mark.parametrize("press", [PressAfter(2), PressIn(3), PressAfter(5)])
def test_a_fit_that_ctrl_c_cut_off_goes_on_from_its_checkpoint(press, tmp_path):
    with pytest.warns(ConvergenceWarning, match="whole epochs"):
        mice(checkpoint=tmp_path, callbacks=[press]).fit(IMAGES)
    estimator = mice(checkpoint=tmp_path).fit(IMAGES)
    assert_usable(estimator, 6)
    found, expected = (model.predict_proba(IMAGES) for model in (estimator, whole()))
    np.testing.assert_array_equal(found, expected)


def test_ctrl_c_while_the_start_is_computed_leaves_a_model_with_a_start(monkeypatch):
    init_labels = whole().init_labels_
    before_the_partition(ctrl_c, monkeypatch)
    with pytest.warns(ConvergenceWarning, match="3 whole epochs"):
        estimator = mice().fit(IMAGES)
    assert_usable(estimator, 3)
    np.testing.assert_array_equal(estimator.init_labels_, init_labels)
    # The prototypes and the gate are those of the partition.
    assert (estimator.labels_ == estimator.init_labels_).mean() > 0.9


def test_an_error_while_the_start_is_computed_leaves_the_estimator_as_it_was(
    monkeypatch,
):
    before_the_partition(raising(FloatingPointError, "not finite"), monkeypatch)
    estimator = mice()
    with pytest.raises(FloatingPointError, match="not finite"):
        estimator.fit(IMAGES)
    with pytest.raises(NotFittedError):
        estimator.predict(IMAGES)


@pytest.mark.parametrize("when", ["start", "epoch"])
def test_a_second_ctrl_c_ends_the_fit_at_once(monkeypatch, when, capsys):
    if when == "start":
        before_the_partition(lambda: [ctrl_c(), ctrl_c()], monkeypatch)
        estimator = mice()
    else:

        class Twice(PressIn):
            def on_batch_end(self, net, **kwargs):
                super().on_batch_end(net, **kwargs)
                if (self.count, self.batches) == (5, 2):
                    ctrl_c()

        estimator = mice(callbacks=[Twice(5)])
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(IMAGES)
    assert signal.getsignal(signal.SIGINT) is before
    said = capsys.readouterr().err
    assert said.startswith("\nStopping. First, a model is made of the whole epochs")
    assert "Press Ctrl-C again" in said
    with pytest.raises(NotFittedError):
        estimator.predict(IMAGES)


@pytest.mark.parametrize("moment", ["setup", "train begins"])
def test_ctrl_c_before_training_is_a_keyboard_interrupt(moment):
    at_once = callback(on_train_begin=lambda net: ctrl_c())
    estimator = mice(callbacks=[at_once] if moment == "train begins" else None)
    if moment == "setup":
        estimator.set_params(backbone=lambda: [ctrl_c(), BACKBONE][1])
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(IMAGES)
    assert not hasattr(estimator, "history_")


def test_a_handler_of_ones_own_stays_and_is_called():
    presses = []
    before = signal.signal(signal.SIGINT, lambda *args: presses.append(args))
    try:
        handler = signal.getsignal(signal.SIGINT)
        with pytest.warns(ConvergenceWarning, match="2 whole epochs"):
            mice(callbacks=[PressAfter(2)]).fit(IMAGES)
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(presses) == 1


def test_a_thread_that_fits_leaves_the_handler_alone():
    before, seen = signal.getsignal(signal.SIGINT), []

    def look(net):
        seen.append(signal.getsignal(signal.SIGINT))

    fit = partial(mice(callbacks=[callback(on_epoch_end=look)]).fit, IMAGES)
    thread = threading.Thread(target=fit)
    thread.start()
    thread.join()
    assert len(seen) == 6
    assert set(seen) == {before}


@pytest.mark.parametrize("size", [0, 2**28])
def test_a_queue_that_is_too_large_to_be_kept_twice_is_filled_anew(size, monkeypatch):
    monkeypatch.setattr(trainer, "LARGEST_KEPT_QUEUE", size)
    with pytest.warns(ConvergenceWarning, match="4 whole epochs"):
        estimator = mice(callbacks=[PressIn(5)]).fit(IMAGES)
    assert_usable(estimator, 4)
    norms = estimator._model.queue.float().norm(dim=-1)
    torch.testing.assert_close(norms, torch.ones_like(norms), atol=1e-2, rtol=0)
    ended = mice(callbacks=[PressAfter(4)])
    with pytest.warns(ConvergenceWarning, match="4 whole epochs"):
        ended.fit(IMAGES)
    ours, theirs = (m.predict_proba(IMAGES) for m in (estimator, ended))
    np.testing.assert_allclose(ours, theirs, atol=1e-6 if size else 0.05)


# ---------------------------------------------------------- early stopping, the bar


def test_early_stopping_works_as_it_comes(monkeypatch):
    monkeypatch.setattr(MiCEClustering, "_n_rounds", 1)
    # No epoch after the first improves by so much: each stage ends after three.
    stop = EarlyStopping(patience=2, threshold=100)
    estimator = mice(max_epochs=9, callbacks=[stop]).fit(IMAGES)
    stages = [row["stage"] for row in estimator.history_]
    assert stages == ["moco"] * 3 + ["em"] * 3
    assert "valid_loss" not in estimator.history_[0]
    named = EarlyStopping(monitor="train_loss", patience=2, threshold=100)
    assert MoCo(max_epochs=5, callbacks=[named], **OPTIONS).fit(IMAGES).n_iter_ == 3


# skorch says where it loads to, as the net has no device of its own.
@pytest.mark.filterwarnings("ignore::skorch.exceptions.DeviceWarning")
def test_loading_the_best_epoch_leaves_the_history_whole(tmp_path):
    def judge(net):
        net.history.record("first_best", len(net.history) == 1)

    keep = Checkpoint(dirname=tmp_path, monitor="first_best", load_best=True)
    callbacks = [callback(on_epoch_end=judge), keep]
    moco = MoCo(max_epochs=4, callbacks=callbacks, **OPTIONS).fit(IMAGES)
    assert moco.n_iter_ == len(moco.history_) == 4


def test_the_bar_is_full_after_early_stopping(capsys):
    mice(callbacks=[EndAfter(1)], verbose=1).fit(IMAGES)
    assert "6/6 epochs" in capsys.readouterr().err


def test_the_bar_tells_a_true_time_after_a_resume(tmp_path, capsys):
    class Slow(Callback):
        def on_epoch_begin(self, net, **kwargs):
            net.started_ -= 100.0  # as if the epoch took so many seconds longer

    options = {"checkpoint": tmp_path, "verbose": 1}
    with pytest.warns(ConvergenceWarning, match="2 whole epochs"):
        mice(callbacks=[PressAfter(2)], **options).fit(IMAGES)
    capsys.readouterr()
    mice(callbacks=[Slow()], **options).fit(IMAGES)
    shown = capsys.readouterr().err
    first = re.findall(r"2/6 epochs [^\r]*", shown)[0]
    assert "left" not in first  # nothing has been timed
    left = re.findall(r"3/6 epochs [^\r]*about ([0-9:]+) of training left", shown)
    minutes, seconds = map(int, left[0].split(":"))
    assert 60 * minutes + seconds == pytest.approx(3 * 2.2 * 100, rel=0.1)


def test_ctrl_c_has_no_cause_of_ours_and_a_new_handler_stays():
    with pytest.raises(KeyboardInterrupt) as caught, ended_by_ctrl_c():
        signal.raise_signal(signal.SIGINT)
    assert caught.value.__suppress_context__
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def mine(number, frame):
        """A handler that some library sets."""

    try:
        with ended_by_ctrl_c():
            signal.signal(signal.SIGINT, mine)
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
