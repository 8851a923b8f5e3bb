"""Every recipe makes an estimator, and the paper's are the paper's."""

import copy
import pickle
from itertools import pairwise

import numpy as np
import pytest
from shared import short_fits

from sk_mice import MiCEClustering, MoCo, recipes
from sk_mice._engine.samples import batches_per_epoch
from sk_mice.ablations import PaperMiCE, PaperMoCo, make_schedule
from sk_mice.backbones import SmallResNet

# Epochs after which the rate is multiplied by 0.1 (appendix).
MILESTONES = {
    "CIFAR10": (480, 640, 800),
    "CIFAR100_20": (480, 640, 800),
    "STL10": (3000, 4000, 5000),
    "IMAGENET_DOG": (1500, 2000, 2500),
}


NAMES = [name for name in recipes.__all__ if name.isupper()]


def estimator_of(name):
    of_the_paper = name.removesuffix("_MOCO") in MILESTONES
    if name.endswith("_MOCO"):
        return PaperMoCo if of_the_paper else MoCo
    return PaperMiCE if of_the_paper else MiCEClustering


def test_recipes_make_estimators_and_cannot_be_changed():
    for name in NAMES:
        recipe = getattr(recipes, name)
        estimator_of(name)(**recipe)._validate_params()
        with pytest.raises(TypeError):
            recipe["lr"] = 2.0
        assert (recipe | {"lr": 2.0})["lr"] == 2.0
        assert {"lr": 2.0} | dict(recipe) == {"lr": 2.0} | recipe
        assert repr(recipe) == repr(dict(recipe))


def test_recipes_can_be_copied_and_pickled():
    recipe = recipes.DIGITS_CPU
    for same in (copy.deepcopy(recipe), pickle.loads(pickle.dumps(recipe))):
        assert same == recipe
    assert copy.deepcopy(recipes.CIFAR10).keys() == recipes.CIFAR10.keys()


def test_parameters_of_an_estimator_do_not_change_a_recipe():
    before = recipes.STL10["augmentation"].get_params()
    mice = PaperMiCE(**recipes.CIFAR10)
    mice.set_params(augmentation__flip=False, augmentation__crop_scale=(0.5, 1))
    assert mice.augmentation.flip is False
    assert recipes.STL10["augmentation"].get_params() == before


@pytest.mark.parametrize("n_samples", [10, 64, 65, 300])
def test_a_recipe_in_steps(n_samples):
    small = recipes.SMALL_SET_CPU
    recipe = recipes.in_steps(small, n_samples, n_steps=7)
    steps_of_an_epoch = batches_per_epoch(n_samples, small["batch_size"])
    n_steps = recipe["max_epochs"] * steps_of_an_epoch
    assert 7 <= n_steps < 7 + steps_of_an_epoch
    assert recipe == small | {"max_epochs": recipe["max_epochs"]}


def test_in_steps_refuses_what_is_no_number_of_steps():
    assert recipes.in_steps({}, 256, 5)["max_epochs"] == 5
    for wrong in ({"n_samples": 0}, {"n_steps": 1.5}, {"recipe": 3}):
        asked = {"recipe": recipes.SMALL_SET_CPU, "n_samples": 9} | wrong
        with pytest.raises(ValueError, match=next(iter(wrong))):
            recipes.in_steps(**asked)


def test_moco_has_the_same_settings():
    for name in NAMES:
        if name.endswith("_MOCO"):
            mice = getattr(recipes, name.removesuffix("_MOCO"))
            shared = PaperMoCo().get_params().keys() & mice.keys()
            moco = getattr(recipes, name)
            assert moco == {parameter: mice[parameter] for parameter in shared}, name


def test_learning_rate_falls_where_the_paper_has_it():
    for name, milestones in MILESTONES.items():
        recipe = getattr(recipes, name)
        rate = make_schedule(recipe["schedule"], recipe["warmup"])
        n_epochs = recipe["max_epochs"]
        assert rate(5 / n_epochs) < 1  # the warm-up of the authors' code
        bounds = [10, *milestones, n_epochs]
        for i, (first, end) in enumerate(pairwise(bounds)):
            for epoch in (first, end - 1):
                np.testing.assert_allclose(rate(epoch / n_epochs), 0.1**i, err_msg=name)


@short_fits
def test_a_fit_and_another_from_its_networks():
    X = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    small = {"backbone": SmallResNet(4), "max_epochs": 1, "n_clusters": 3}
    mice = PaperMiCE(**(recipes.CIFAR10 | small), random_state=0).fit(X)
    first = mice.expert_prototypes_
    mice.set_params(**recipes.FINETUNE).fit(X)
    assert [row["stage"] for row in mice.history_] == ["em"]
    assert mice.history_[0]["lr"] <= 0.1
    assert not np.array_equal(first, mice.expert_prototypes_)
