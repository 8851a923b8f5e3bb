"""How good the clusters are. Slow: whole fits on real images."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from sk_mice import MiCEClustering, MoCo, datasets
from sk_mice.metrics import clustering_accuracy_score

pytestmark = pytest.mark.slow


def test_digits_over_five_seeds():
    X, y, _ = datasets.load_digits()
    accuracies = [
        clustering_accuracy_score(
            y, MiCEClustering(10, random_state=seed).fit_predict(X)
        )
        for seed in range(5)
    ]
    assert np.mean(accuracies) >= 0.92
    assert min(accuracies) >= 0.88


def test_classes_of_unlike_size():
    X, y, _ = datasets.load_digits()
    sizes = [178, 138, 107, 83, 64, 50, 38, 30, 23, 18]
    kept = np.concatenate(
        [np.flatnonzero(y == label)[:n] for label, n in enumerate(sizes)]
    )
    model = MiCEClustering(10, random_state=0).fit(X[kept])
    assert clustering_accuracy_score(y[kept], model.labels_) >= 0.7
    assert model.cluster_sizes_.min() > 0


@pytest.mark.parametrize("estimator", [MiCEClustering(), MoCo()])
@pytest.mark.filterwarnings(
    # The array-API check says that it is skipped where SCIPY_ARRAY_API is not set.
    "ignore::sklearn.exceptions.SkipTestWarning",
    # Some checks have fewer distinct samples than clusters.
    "ignore::sklearn.exceptions.ConvergenceWarning",
)
def test_scikit_learns_checks_with_the_defaults(estimator):
    results = check_estimator(estimator, on_fail=None)
    failed = [r["check_name"] for r in results if r["status"] == "failed"]
    skipped = {r["check_name"] for r in results if r["status"] == "skipped"}
    assert failed == []
    assert skipped <= {"check_array_api_input", "check_array_api_input_and_values"}
