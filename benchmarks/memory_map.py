"""Throughput of fits and predictions of images in a file, to the same in memory.

The file is in the page cache, and larger than what is shuffled as in memory. Sorted
noise with ten kinds of images; the ratio needs no better ones. "pooled" averages the
image and has one layer: almost all of its time is reading X. Interleaved, medians.

    python benchmarks/memory_map.py
"""

import argparse
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from _common import limit_threads, report, timed
from torch import nn

from sk_mice import MiCEClustering

NETWORKS = {
    "pooled": lambda: nn.Sequential(
        nn.AvgPool2d(8), nn.Flatten(), nn.LazyLinear(64), nn.ReLU()
    ),
    "resnet-small": lambda: "resnet-small",
}


def write_images(path, n, size):
    """Float images (n, 3, size, size) in a file, as a memory map."""
    draw = np.random.default_rng(0)
    shape = (n, 3, size, size)
    X = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    kinds = draw.random((10, 3, 1, 1), np.float32)
    noise = draw.random((64, *shape[1:]), np.float32)
    for start in range(0, n, 64):
        rows = np.arange(start, min(start + 64, n))
        X[rows] = 0.5 * kinds[rows * 10 // n] + 0.5 * noise[: len(rows)]
    X.flush()
    return np.load(path, mmap_mode="r")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=30_000)
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--backbone", choices=NETWORKS, default="pooled")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="for the file; default: scratch")
    parser.add_argument("--json", type=Path, help="where to write the results")
    options = parser.parse_args(argv)
    limit_threads(options.threads)
    network = NETWORKS[options.backbone]()
    if isinstance(network, nn.Module):
        size = options.image_size
        network(torch.zeros(2, 3, size, size))
    mice = MiCEClustering(
        10,
        backbone=network,
        init=np.arange(options.n) * 10 // options.n,  # the kinds, so none is empty
        augmentation=None,
        max_epochs=1,
        batch_size=options.batch_size,
        lr=0.01,
        device="cpu",
        random_state=0,
    )
    with TemporaryDirectory(dir=options.folder) as folder:
        file = write_images(Path(folder, "X.npy"), options.n, options.image_size)
        places = {"memory": np.array(file), "file": file}
        times = {name: {"fit": [], "predict": []} for name in places}
        for _ in range(options.repeats):
            for name, X in places.items():
                times[name]["fit"].append(timed(mice.fit, X)[1])
                times[name]["predict"].append(timed(mice.predict, X)[1])
    medians = {
        place: {what: statistics.median(values) for what, values in of.items()}
        for place, of in times.items()
    }
    result = {
        "bytes": file.nbytes,
        "seconds": medians,
        "throughput_to_memory": {
            what: medians["memory"][what] / medians["file"][what]
            for what in ("fit", "predict")
        },
    }
    report(options.json, __file__, argv, result)


if __name__ == "__main__":
    main()
