"""Every recipe makes an estimator, and the paper's are the paper's."""

import inspect

import numpy as np
import pytest

from sk_mice import MiCEClustering, MoCo, recipes
from sk_mice._engine.schedule import check_schedule, learning_rate
from sk_mice.backbones import SmallResNet

PAPER = ("CIFAR10", "CIFAR100_20", "STL10", "IMAGENET_DOG")
# All, and those after which the rate is multiplied by 0.1 (appendix).
EPOCHS = {
    "CIFAR10": (1000, 480, 640, 800),
    "CIFAR100_20": (1000, 480, 640, 800),
    "STL10": (6000, 3000, 4000, 5000),
    "IMAGENET_DOG": (3000, 1500, 2000, 2500),
}


def estimator_of(name):
    return MoCo if name.endswith("_MOCO") else MiCEClustering


@pytest.mark.parametrize("name", recipes.__all__)
def test_recipe_makes_an_estimator(name):
    recipe = getattr(recipes, name)
    estimator = estimator_of(name)(**recipe)
    estimator._validate_params()
    check_schedule(estimator.schedule)
    for parameter, value in recipe.items():
        assert getattr(estimator, parameter) == value


@pytest.mark.parametrize("name", recipes.__all__)
def test_recipe_cannot_be_changed_by_accident(name):
    recipe = getattr(recipes, name)
    with pytest.raises(TypeError):
        recipe["lr"] = 2.0
    assert (recipe | {"lr": 2.0})["lr"] == 2.0


@pytest.mark.parametrize("name", [n for n in recipes.__all__ if n.endswith("_MOCO")])
def test_moco_has_the_same_settings(name):
    moco = getattr(recipes, name)
    mice = getattr(recipes, name.removesuffix("_MOCO"))
    shared = inspect.signature(MoCo).parameters.keys() & mice.keys()
    assert moco == {parameter: mice[parameter] for parameter in shared}


@pytest.mark.parametrize("name", PAPER)
def test_paper_starts_at_random(name):
    assert getattr(recipes, name)["init"] == "random"


@pytest.mark.parametrize("name", PAPER)
def test_learning_rate_falls_where_the_paper_has_it(name):
    recipe = getattr(recipes, name)
    n_epochs, *milestones = EPOCHS[name]
    assert recipe["max_epochs"] == n_epochs
    rate = learning_rate(recipe["lr"], recipe["schedule"], recipe["warmup"])
    assert rate(5 / n_epochs) < 1  # the warm-up of the authors' code
    starts = [10, *milestones]
    for i, (first, end) in enumerate(zip(starts, [*milestones, n_epochs], strict=True)):
        for epoch in (first, end - 1):
            np.testing.assert_allclose(rate(epoch / n_epochs), 0.1**i)


def test_the_queue_of_stl10_is_shorter():
    assert recipes.STL10["queue_size"] == 12800
    assert recipes.CIFAR10["queue_size"] == 16384


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_and_another_from_its_networks():
    X = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    small = {"backbone": SmallResNet(4), "max_epochs": 1, "n_clusters": 3}
    mice = MiCEClustering(**(recipes.CIFAR10 | small), random_state=0).fit(X)
    first = mice.expert_prototypes_
    mice.set_params(**recipes.FINETUNE).fit(X)
    assert [row["stage"] for row in mice.history_] == ["em"]
    assert mice.history_[0]["lr"] <= 0.1
    assert not np.array_equal(first, mice.expert_prototypes_)
