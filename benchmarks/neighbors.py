"""What positives from mutual nearest neighbours bring: `n_neighbors`.

Images are taken as they are, or as vectors: rows of pixels, the first 64 principal
components of more. So the vectors stand for features that somebody else's network, or a
method without one, has left, and for which there is no augmentation.
"""

import numpy as np
from _common import (
    N_CLASSES,
    common_parser,
    limit_threads,
    load,
    print_table,
    results_path,
    scores,
    timed,
    write_json,
)
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from sk_mice import MiCEClustering
from sk_mice.metrics import clustering_accuracy_score

N_COMPONENTS = 64


def as_vectors(X):
    rows = X.reshape(len(X), -1).astype(np.float32)
    if rows.shape[1] > N_COMPONENTS:
        rows = PCA(N_COMPONENTS, random_state=0).fit_transform(rows)
    return rows


def main(argv=None):
    parser = common_parser(__doc__)
    parser.add_argument("--images", action="store_true", help="not as vectors")
    parser.add_argument("--n-neighbors", type=int, nargs="+", default=[10])
    options = parser.parse_args(argv)
    limit_threads(options.threads)
    X, y = load(options.data, options.n)
    vectors, beside = as_vectors(X), {}
    if not options.images:
        X, beside = vectors, {"augmentation": None}
    kind = "images" if options.images else "vectors"
    path = results_path(options, "neighbors", options.data, kind)
    cases = {"MiCE": {}}
    for n_neighbors in options.n_neighbors:
        title = f"MiCE, n_neighbors={n_neighbors}"
        cases[title] = beside | {"n_neighbors": n_neighbors}
    results = {name: [] for name in [*cases, "k-means"]}
    for seed in options.seeds:
        for name, parameters in cases.items():
            model = MiCEClustering(
                N_CLASSES, max_epochs=options.epochs, random_state=seed, **parameters
            )
            _, seconds = timed(model.fit, X)
            start = clustering_accuracy_score(y, model.init_labels_)
            row = {**scores(y, model.labels_), "seconds": seconds}
            results[name].append({"seed": seed, **row, "acc_at_start": start})
            print(f"seed {seed}  {name:24}", results[name][-1], flush=True)
        kmeans = KMeans(N_CLASSES, n_init=20, random_state=seed)
        labels, seconds = timed(kmeans.fit_predict, vectors)
        row = {"seed": seed, **scores(y, labels), "seconds": seconds}
        results["k-means"].append(row)
        print_table(results, f"{options.data}, {len(X):,} {kind}")
        write_json(path, __file__, argv, results, data=options.data, n=len(X))


if __name__ == "__main__":
    main()
