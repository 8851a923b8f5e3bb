"""Every recipe makes an estimator, and the paper's are the paper's."""

import numpy as np
import pytest

from sk_mice import MiCEClustering, MoCo, recipes
from sk_mice.ablations import PaperMiCE, PaperMoCo, course
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
    of_the_paper = name.removesuffix("_MOCO") in PAPER
    if name.endswith("_MOCO"):
        return PaperMoCo if of_the_paper else MoCo
    return PaperMiCE if of_the_paper else MiCEClustering


@pytest.mark.parametrize("name", recipes.__all__)
def test_recipe_makes_an_estimator(name):
    recipe = getattr(recipes, name)
    estimator = estimator_of(name)(**recipe)
    estimator._validate_params()
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
    shared = PaperMoCo().get_params().keys() & mice.keys()
    assert moco == {parameter: mice[parameter] for parameter in shared}


@pytest.mark.parametrize("name", PAPER)
def test_paper_starts_at_random(name):
    assert getattr(recipes, name)["init"] == "random"


@pytest.mark.parametrize("name", PAPER)
def test_learning_rate_falls_where_the_paper_has_it(name):
    recipe = getattr(recipes, name)
    n_epochs, *milestones = EPOCHS[name]
    assert recipe["max_epochs"] == n_epochs
    assert recipe["lr"] == 1.0
    rate = course(recipe["schedule"], recipe["warmup"])
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
    mice = PaperMiCE(**(recipes.CIFAR10 | small), random_state=0).fit(X)
    first = mice.expert_prototypes_
    mice.set_params(**recipes.FINETUNE).fit(X)
    assert [row["stage"] for row in mice.history_] == ["em"]
    assert mice.history_[0]["lr"] <= 0.1
    assert not np.array_equal(first, mice.expert_prototypes_)
