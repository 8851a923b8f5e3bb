"""Hashes that tell fits apart by their parameters, their data and their code."""

import copy
import importlib
import math
import os
import subprocess
import sys
import textwrap
import threading
from functools import cache, cached_property, partial

import joblib
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from shared import recorded, tiny
from sklearn.datasets import load_digits
from skorch.callbacks import Callback

from sk_mice import MiCEClustering
from sk_mice._checkpoint import Checkpoint
from sk_mice._identity import identity
from sk_mice.ablations import PaperMiCE
from sk_mice.augmentation import ImageAugmentation
from sk_mice.backbones import SmallResNet

IMAGES = load_digits(n_class=4).images[:80]


def mice(**options):
    return tiny(PaperMiCE if "schedule" in options else MiCEClustering, **options)


class Saved(Exception):
    """Raised in place of training, when a fit has looked for its file."""


class Stops(Callback):
    """Ends a fit before it trains."""

    def on_train_begin(self, net, **kwargs):
        raise Saved


@pytest.fixture
def name_of(tmp_path, monkeypatch):
    """The name of the file that a fit looks for."""
    names = recorded(monkeypatch, Checkpoint, "load", lambda kept: kept.path.name)

    def name(X=IMAGES, *, fit_params=None, **options):
        options = {"callbacks": [Stops()]} | options
        estimator = mice(checkpoint=tmp_path, **options)
        with pytest.raises(Saved):
            estimator.fit(X, **(fit_params or {}))
        return names[-1]

    return name


def scaled(factor):
    return lambda progress: factor * progress


class Scaled:
    """A callable object, as users write them."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, progress):
        return self.factor * progress

    def method(self, progress):
        return self.factor * progress


def lazily(factor):
    """A callable object that computes its factor once."""

    class Lazily:
        @cached_property
        def factor(self):
            return factor

        def __call__(self, progress):
            return self.factor * progress

    return Lazily()


def by_a_property(factor):
    """A callable object of a class with all kinds of members."""

    class Own:
        __slots__ = ("unused",)

        @staticmethod
        def times(progress):
            return factor * progress

        @property
        def scaled(self):
            return self.times

        def __call__(self, progress):
            return self.scaled(progress)

    return Own()


def repeated(factor):
    """A function that calls itself."""

    def repeat(progress):
        return progress if progress < 1 else repeat(factor * progress)

    return repeat


class Encoder(torch.nn.Module):
    """A network whose plain attribute decides what it computes."""

    def __init__(self, power=1):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(256, 8))
        self.power = power

    def forward(self, x):
        return self.layers(x) ** self.power


FACTOR = 1.0


def of_a_global(progress):
    return max(FACTOR * p for p in [progress])


def test_names_tell_fits_apart_and_nothing_else(name_of):
    same = [
        name_of(),
        name_of(verbose=1, callbacks=[Callback(), Stops()]),
        name_of(np.asfortranarray(IMAGES)),
        name_of(random_state=np.int64(0)),
        name_of(distributed=False),
    ]
    assert len(set(same)) == 1
    generator = np.random.RandomState
    module = Encoder()
    other = copy.deepcopy(module)
    other.layers[1].bias.data += 1e-3
    changed = IMAGES.copy()
    changed[-1, -1, -1] += 1
    rows = IMAGES.reshape(80, -1)
    labels = np.arange(80) % 3
    others = [
        *(name_of(tau=0.5), name_of(max_epochs=9), name_of(random_state=1)),
        *(name_of(random_state=generator(s)) for s in (0, 1)),
        *(name_of(backbone=m) for m in (module, other)),
        *(name_of(augmentation=a) for a in (None, lambda s, g: s, lambda s, g: s / 2)),
        *(name_of(changed), name_of(IMAGES[:-1]), name_of(IMAGES.astype(np.float32))),
        *(name_of(init=y) for y in (labels, 2 - labels)),
        *(
            name_of(augmentation=ImageAugmentation(affine=pair))
            for pair in ((1, 23), (12, 3))
        ),
        *(name_of(backbone=SmallResNet(1, blocks=b)) for b in ((1, 12), (11, 2))),
        *(name_of(rows, image_shape=s) for s in ((16, 4), (1, 64))),
        *(name_of(schedule=s) for s in ([0.1, 0.23], [0.12, 0.3])),
    ]
    assert len({*same, *others}) == 1 + len(others)


@pytest.mark.parametrize(
    ("one", "again", "other"),
    [
        (lambda p: 0.5, lambda p: 0.5, lambda p: 0.25),
        (lambda p: math.cos(p), lambda p: math.cos(p), lambda p: math.sqrt(p)),
        (scaled(1.0), scaled(1.0), scaled(0.5)),
        (partial(max, 0.1), partial(max, 0.1), partial(max, 0.2)),
        (Scaled(1.0), Scaled(1.0), Scaled(0.5)),
        (Scaled(1.0).method, Scaled(1.0).method, Scaled(0.5).method),
        (np.cos, np.cos, np.sqrt),
        (cache(lambda p: 0.5), cache(lambda p: 0.5), cache(lambda p: 0.25)),
        (lazily(1.0), lazily(1.0), lazily(0.5)),
        (by_a_property(1.0), by_a_property(1.0), by_a_property(0.5)),
        (repeated(0.5), repeated(0.5), repeated(0.25)),
        (lambda p, f=1.0: f * p, lambda p, f=1.0: f * p, lambda p, f=0.5: f * p),
        (lambda p, *, f=1.0: f, lambda p, *, f=1.0: f, lambda p, *, f=0.5: f),
    ],
    ids=[
        *("lambda", "name", "closure", "partial", "callable", "method", "ufunc"),
        *("cached", "cached property", "property", "recursive", "default", "keyword"),
    ],
)
def test_code_is_told_apart_by_what_it_does(name_of, one, again, other):
    assert name_of(schedule=one) == name_of(schedule=again)
    assert name_of(schedule=one) != name_of(schedule=other)


def subclass(lr=0.1, share=0.5):
    """A user's own class, which fixes parameters and may change what is private."""

    class Own(MiCEClustering):
        _held_share = share

        def __init__(self, n_clusters=4, *, callbacks=None, checkpoint=None):
            super().__init__(
                n_clusters,
                lr=lr,
                max_epochs=2,
                callbacks=callbacks,
                checkpoint=checkpoint,
                random_state=0,
            )

        def transform(self, X, *, out=None):
            return super().transform(X, out=out)

    return Own


def described(text):
    """A function of a script, whose docstring may be edited."""
    scope = {"__name__": "script"}
    exec(f"def view(stack, generator):\n    '{text}'\n    return stack / 2", scope)
    return scope["view"]


def returned(text):
    scope = {"__name__": "script"}
    exec(f"def view(stack, generator):\n    '{text}'\n    return '{text}'", scope)
    return scope["view"]


def test_a_docstring_has_no_effect_unless_it_is_used():
    one, other = (identity(mice(augmentation=described(t))) for t in ("Grey.", "Dark."))
    assert one == other
    one, other = (identity(mice(augmentation=returned(t))) for t in ("Grey.", "Dark."))
    assert one != other


def test_subclasses_are_told_apart_by_their_code_and_all_parameters(tmp_path):
    def digests(cls):
        return identity(cls(), X=IMAGES)

    once = digests(subclass())
    assert digests(subclass()) == once
    assert differing(digests(subclass(lr=0.2)), once) == {"code", "lr"}
    assert differing(digests(subclass(share=0.1)), once) == {"code"}
    assert identity(subclass()(checkpoint=tmp_path), X=IMAGES) == once
    own = subclass()()
    own.lr = 0.2
    assert differing(identity(own, X=IMAGES), once) == {"lr"}
    assert "code" not in digests(PaperMiCE)


def differing(one, other):
    return {name for name in one | other if one.get(name) != other.get(name)}


def test_code_is_told_apart_by_the_globals_that_it_reads(name_of, monkeypatch):
    first = name_of(schedule=of_a_global)
    monkeypatch.setitem(globals(), "FACTOR", 0.5)
    assert name_of(schedule=of_a_global) != first


@pytest.mark.parametrize("kind", ["annotated", "plain"])
def test_annotations_that_are_read_change_no_name(name_of, kind):
    class Annotated:
        factor: float = 0.5

        def __call__(self, progress):
            return self.factor * progress

    schedule = Annotated() if kind == "annotated" else Scaled(0.5)
    first = name_of(schedule=schedule)
    assert ("factor" in type(schedule).__annotations__) == (kind == "annotated")
    assert name_of(schedule=schedule) == first


def test_modules_are_told_apart_by_plain_attributes(name_of):
    module = Encoder()
    other, same = copy.deepcopy(module), copy.deepcopy(module)
    other.power = 2
    assert name_of(backbone=module) == name_of(backbone=same)
    assert name_of(backbone=module) != name_of(backbone=other)


PAIRS = st.one_of(
    st.tuples(st.integers(0, 45), st.integers(0, 45)),
    st.tuples(st.floats(0, 45), st.integers(0, 45)),
    st.lists(st.integers(0, 99), min_size=1, max_size=3),
    st.text("1,2 )('", max_size=4),
)
VALUES = st.dictionaries(st.sampled_from("abc"), PAIRS | st.tuples(PAIRS, PAIRS))


@settings(max_examples=200, deadline=None)
@given(VALUES, VALUES)
@example({"a": 1, "b": 2}, {"b": 2, "a": 1})
def test_identities_are_equal_only_where_values_are(one, other):
    estimator = mice()
    first, second = (identity(estimator, given=v) for v in (one, other))
    texts = [repr(sorted(values.items())) for values in (one, other)]
    assert (first == second) == (texts[0] == texts[1])
    assert first == identity(estimator, given=copy.deepcopy(one))


def test_arrays_are_told_apart_by_value_shape_and_type():
    arrays = [
        *(np.zeros(()), np.ones(()), np.zeros(1), np.zeros((1, 1))),
        *(np.zeros(1, np.int64), np.zeros(2, np.float32)),
        *(torch.zeros(1), torch.zeros(1, 1), torch.zeros(1, dtype=torch.int32)),
        torch.zeros(1, requires_grad=True),
    ]
    found = [identity(mice(), given=array)["given"] for array in arrays]
    assert len(set(found)) == len(arrays)
    copies = map(copy.deepcopy, arrays)
    assert [identity(mice(), given=array)["given"] for array in copies] == found


def test_what_cannot_be_told_apart_is_refused_with_a_checkpoint_only(tmp_path):
    lock = threading.Lock()

    def schedule(progress):
        with lock:
            return progress

    with pytest.raises(Saved):
        mice(schedule=schedule, callbacks=[Stops()]).fit(IMAGES)
    with pytest.raises(
        ValueError, match=r"`schedule` must be comparable.*_thread\.lock"
    ):
        mice(schedule=schedule, checkpoint=tmp_path).fit(IMAGES)


IN_ANOTHER_PROCESS = """
    import sys
    sys.path.insert(0, {tests!r})
    from functools import partial
    from test_identity import Encoder, IMAGES, Scaled, mice, scaled
    from sk_mice._identity import identity
    import torch
    for schedule in (partial(max, 0.1), Scaled(0.5), Scaled(0.5).method, scaled(2.0)):
        print(identity(mice(schedule=schedule, augmentation=abs), X=IMAGES))
    print(identity(mice(schedule=Scaled(set("abcdefgh"))), X=IMAGES))
    print(identity(mice(backbone=Encoder), X=IMAGES))
"""


def test_another_process_finds_the_same_names(capsys):
    script = textwrap.dedent(IN_ANOTHER_PROCESS)
    script = script.format(tests=os.path.dirname(__file__))
    found = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    exec(script, {})
    assert found == capsys.readouterr().out
    assert len(set(found.splitlines())) == 6


def test_packages_of_another_environment_are_compared_by_name(tmp_path, monkeypatch):
    ways = {}
    for version in "first", "second":
        for name in "lib/python3/site-packages/installed_far", "written_here":
            file = tmp_path / version / f"{name}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"def view(stack, generator):\n    return '{version}'\n")
            monkeypatch.syspath_prepend(file.parent)
            module = importlib.import_module(file.stem)
            parts = identity(mice(augmentation=module.view))
            ways.setdefault(file.stem, set()).add(parts["augmentation"])
            del sys.modules[file.stem]
    assert {name: len(found) for name, found in ways.items()} == {
        "installed_far": 1,
        "written_here": 2,
    }


@pytest.mark.parametrize("name", ["__main__", "sent_by_value"])
def test_code_that_a_worker_was_sent_is_compared_by_content(monkeypatch, name):
    # In a worker of loky, the file of `__main__` is one of joblib's.
    monkeypatch.setattr(sys.modules["__main__"], "__file__", joblib.__file__, False)
    found = set()
    for value in (1, 2):
        scope = {"__name__": name}
        exec(f"def view(stack, generator):\n    return {value} * stack", scope)
        found.add(identity(mice(augmentation=scope["view"]))["augmentation"])
    assert len(found) == 2
