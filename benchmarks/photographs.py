"""Time of the features of photographs, to that of the network as its package has it.

Noise of low resolution stands in for photographs, as JPEG files. Features include the
decoding, which is also measured alone. Interleaved, medians.

    python benchmarks/photographs.py
"""

import argparse
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from _common import limit_threads, report, timed
from PIL import Image

from sk_mice._pretrained import find_network
from sk_mice.datasets._decoding import Decoder
from sk_mice.features import PretrainedFeatures

NETWORK = "efficientnet-lite0"
SIZES = ((32, 32), (1600, 1200))  # width, height
DETAIL = 4  # pixels of a file for one of the noise


def write_photographs(folder, n, size):
    """Paths of n JPEG files."""
    draw = np.random.default_rng(0)
    width, height = size
    paths = [Path(folder, f"{width}x{height}-{i}.jpg") for i in range(n)]
    for path in paths:
        noise = draw.integers(0, 256, (height // DETAIL, width // DETAIL, 3), np.uint8)
        Image.fromarray(noise).resize(size).save(path, quality=90)
    return paths


def decode(paths, side):
    decoder, row = Decoder(side, smooth=True), np.empty((side, side, 3), np.uint8)
    for path in paths:
        decoder.into(row, path)


def forward(module, batches, dtype):
    with torch.inference_mode(), torch.autocast("cpu", dtype, enabled=bool(dtype)):
        for batch in batches:
            module(batch)


def measure(paths, repeats) -> dict:
    """Seconds of an image, medians, and what they make of each other."""
    features = PretrainedFeatures(NETWORK, device="cpu").fit(paths)
    side, size = features.image_size_, features.batch_size_
    network = find_network(NETWORK, None).build(side)
    module = network.module.to(memory_format=torch.channels_last)
    batch = network.input(torch.rand(size, 3, side, side))
    batches = [batch[: len(paths) - start] for start in range(0, len(paths), size)]
    runs = {
        "features": (features.transform, paths),
        "network as it is": (forward, module, batches, features._dtype),
        "decoding": (decode, paths, side),
    }
    times = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            times[name].append(timed(*run)[1] / len(paths))
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {
        "image_size": side,
        "seconds": medians,
        "time_to_network": medians["features"] / medians["network as it is"],
    }


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=128, help="photographs of each size")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="where to write the results")
    options = parser.parse_args(argv)
    limit_threads(options.threads)
    result = {}
    with TemporaryDirectory() as folder:
        for size in SIZES:
            paths = write_photographs(folder, options.n, size)
            result[f"{size[0]} x {size[1]}"] = measure(paths, options.repeats)
    report(options.json, __file__, argv, result)


if __name__ == "__main__":
    main()
