"""Times on a machine with a busy core, to those on an idle one.

One other process counts without end. In one run, interleaved, medians by the clock.
Nothing else should run. Images are noise.

    python benchmarks/busy.py
"""

import argparse
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from _common import limit_threads, report
from sklearn.base import clone

from sk_mice import ClassificationEM, MoCo
from sk_mice.features import PretrainedFeatures


@contextmanager
def one_busy_core():
    """A process in a session of its own, as those of other users have."""
    loop = [sys.executable, "-c", "while True: pass"]
    process = subprocess.Popen(loop, start_new_session=True)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=512, help="images")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where to write the results")
    options = parser.parse_args(argv)
    shape = options.n, 32, 32, 3
    X = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    limit_threads(options.threads)
    features = PretrainedFeatures("efficientnet-lite0", device="cpu").fit(X)
    moco = MoCo(max_epochs=1, device="cpu", random_state=0).fit(X)

    partition = ClassificationEM(10, random_state=0)
    vectors = np.random.default_rng(0).standard_normal((4 * options.n, 1280), "f4")
    epochs = clone(moco).set_params(max_epochs=30)

    def with_one_thread():
        torch.set_num_threads(1)
        moco.fit(X)
        torch.set_num_threads(options.threads)

    runs = {
        "pretrained features": lambda: features.transform(X),
        "predictions": lambda: moco.transform(X),
        "an epoch": lambda: moco.fit(X),
        "an epoch with one thread": with_one_thread,
        "30 epochs": lambda: epochs.fit(X),
        "clusters of vectors": lambda: partition.fit(vectors),
    }
    seconds = {name: {"idle": [], "busy": []} for name in runs}
    for _ in range(options.repeats):
        for name, run in runs.items():
            seconds[name]["idle"].append(timed(run))
            with one_busy_core():
                seconds[name]["busy"].append(timed(run))
    medians = {
        name: {state: statistics.median(found) for state, found in by_state.items()}
        for name, by_state in seconds.items()
    }
    results = {
        "seconds": medians,
        "busy_to_idle": {name: s["busy"] / s["idle"] for name, s in medians.items()},
    }
    report(options.json, __file__, argv, results)


def timed(run):
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
