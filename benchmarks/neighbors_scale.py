"""Seconds, memory and recall of the search for neighbours.

Rows lie around 1,000 centres on a curved surface of 24 dimensions, with noise.

    python benchmarks/neighbors_scale.py --n 1000000 --threads 2
"""

import argparse
import time
from pathlib import Path

import numpy as np
from _common import RESULTS, limit_threads, peak_memory, timed, write_json
from sklearn.preprocessing import normalize

from sk_mice._engine.neighbors import mutual_neighbors

N_CENTRES, N_LATENT = 1000, 24


def curved(n, n_features):
    """Unit rows (n, n_features) in float32, made in pieces."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(N_CENTRES, N_LATENT))
    maps = [
        rng.normal(size=shape) / np.sqrt(shape[0])
        for shape in ((N_LATENT, n_features), (n_features, n_features))
    ]
    rows = np.empty((n, n_features), np.float32)
    for part in np.array_split(rows, max(1, n // 10_000)):
        latent = centres[rng.integers(N_CENTRES, size=len(part))]
        latent += 0.7 * rng.normal(size=latent.shape)
        part[:] = np.tanh(2 * latent @ maps[0]) @ maps[1]
        part += 0.05 * rng.normal(size=part.shape)
    return normalize(rows, copy=False)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=200_000, help="rows")
    parser.add_argument("--n-features", type=int, default=128)
    parser.add_argument("--n-neighbors", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="where to write the results")
    options = parser.parse_args(argv)
    limit_threads(options.threads)
    rows = curved(options.n, options.n_features)
    before = peak_memory()
    start = time.process_time()
    (table, recall), seconds = timed(mutual_neighbors, rows, options.n_neighbors)
    figures = {
        "n": options.n,
        "n_features": options.n_features,
        "n_neighbors": options.n_neighbors,
        "seconds": seconds,
        "cpu_seconds": time.process_time() - start,  # of all threads
        "recall": recall,
        "alone": float((table == np.arange(len(table))[:, None]).all(axis=1).mean()),
        "peak_memory": peak_memory(),
        "peak_memory_before": before,
    }
    print(figures, flush=True)
    path = options.json or RESULTS / f"neighbors_scale_{options.n}.json"
    write_json(path, __file__, argv, {"search": [figures]})


if __name__ == "__main__":
    main()
