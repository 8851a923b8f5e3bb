"""Work that is spread over threads of one core each."""

import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from shared import tiny
from systems import forks
from torch import nn
from torch.utils.data import Dataset

from sk_mice import MoCo
from sk_mice._engine.threads import begun_ahead, in_threads
from sk_mice.features import PretrainedFeatures

pytestmark = pytest.mark.usefixtures("two_threads")


def where(item):
    return item, threading.get_ident(), torch.get_num_threads()


def test_each_item_is_computed_by_one_thread_with_one_core():
    found = list(in_threads(where, range(50), 50))
    items, threads, cores = zip(*found, strict=True)
    assert items == tuple(range(50))
    assert threading.get_ident() not in threads
    assert len(set(threads)) <= 2
    assert set(cores) == {1}


def test_other_threads_keep_all_cores():
    list(in_threads(where, range(2), 2))
    seen = [torch.get_num_threads()]
    other = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    other.start()
    other.join()
    assert seen == [2, 2]


@pytest.mark.parametrize(("n_threads", "n_items"), [(1, 5), (2, 1), (2, 0)])
def test_few_items_are_computed_by_this_thread(n_threads, n_items):
    torch.set_num_threads(n_threads)
    found = list(in_threads(where, range(n_items), n_items))
    this = threading.get_ident()
    assert found == [(i, this, n_threads) for i in range(n_items)]


def test_threads_end_when_there_is_another_number_of_them():
    idents = {ident for _, ident, _ in in_threads(where, range(50), 50)}
    old = [thread for thread in threading.enumerate() if thread.ident in idents]
    torch.set_num_threads(3)
    assert list(in_threads(int, range(3), 3)) == [0, 1, 2]
    for thread in old:
        thread.join(timeout=60)
        assert not thread.is_alive()


def test_few_items_are_taken_ahead():
    taken = []
    found = in_threads(int, map(lambda i: taken.append(i) or i, range(100)), 100)
    assert next(found) == 0
    assert len(taken) == 3


def test_an_error_ends_it_and_the_next_call_works():
    found = in_threads(lambda i: 1 // i, [2, 1, 0, 1, 1, 1], 6)
    with pytest.raises(ZeroDivisionError):
        list(found)
    assert list(in_threads(int, range(3), 3)) == [0, 1, 2]


@forks
def test_a_fork_has_threads_of_its_own():
    code = """
import os, torch
from sk_mice._engine.threads import in_threads
torch.set_num_threads(2)
assert list(in_threads(int, range(9), 9)) == list(range(9))
child = os.fork()
if not child:
    torch.set_num_threads(2)
    os._exit(list(in_threads(int, range(9), 9)) != list(range(9)))
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_begun_ahead():
    begun = []
    tasks = begun_ahead(map(lambda i: begun.append(i) or i, range(9)), 2)
    assert next(tasks) == 0
    assert begun == [0, 1, 2]
    assert list(tasks) == list(range(1, 9))


# --------------------------------------------------------------------------- results


def test_predictions_do_not_depend_on_the_number_of_threads():
    X = np.random.default_rng(0).random((300, 32, 32, 3), np.float32)
    torch.set_num_threads(1)
    moco = tiny(MoCo).fit(X[:64])
    alone = moco.transform(X)
    torch.set_num_threads(2)
    np.testing.assert_allclose(moco.transform(X), alone, atol=1e-5)


def test_features_do_not_depend_on_the_number_of_threads():
    X = np.random.default_rng(0).integers(0, 256, (9, 32, 32, 3), np.uint8)
    features = PretrainedFeatures(
        "efficientnet-lite0", image_size=64, batch_size=2, precision="float32"
    ).fit(X)
    found = features.transform(X)
    torch.set_num_threads(1)
    np.testing.assert_allclose(features.transform(X), found, atol=1e-4)


def test_a_module_of_the_users_is_called_by_one_thread():
    class Module(nn.Module):
        transforms = nn.Identity()

        def forward(self, images):
            callers.add(threading.get_ident())
            return images.mean((2, 3))

    callers = set()
    X = np.zeros((9, 8, 8, 3), np.uint8)
    PretrainedFeatures(Module(), batch_size=2).fit(X).transform(X)
    assert callers == {threading.get_ident()}


def test_a_dataset_is_read_by_one_thread():
    class Images(Dataset):
        def __len__(self):
            return 9

        def __getitem__(self, i):
            readers.add(threading.get_ident())
            return np.zeros((32, 32, 3), np.uint8)

    readers = set()
    features = PretrainedFeatures("efficientnet-lite0", image_size=32, batch_size=2)
    features.fit(Images()).transform(Images())
    assert readers == {threading.get_ident()}
