"""Throughput and memory of `predict` against the forward passes of its networks.

The images are scikit-learn's digits, enlarged and moved at random; the model is
trained on 10,000 of them for a few epochs. Interleaved, medians. `predict_proba` has to
sum over the whole queue, `predict` only where bounds of that sum do not tell the label.
Memory is what the process's peak while it predicts has above what it held before,
images and networks among that (Linux only).

    python benchmarks/predict.py
    python benchmarks/predict.py --max-pool --queue-size 16384
"""

import argparse
import statistics
from pathlib import Path

import numpy as np
import torch
from _common import add_backbone, backbone, limit_threads, load, report, timed
from torch.nn import functional as F

from sk_mice import MiCEClustering
from sk_mice._engine.inference import LARGEST_BATCH, in_pieces

FITTED, SHIFT = 10_000, 2  # images, pixels


def moved_digits(n, size):
    """Images (n, size, size) with the classes' structure, as many as asked for."""
    draw = np.random.default_rng(0)
    X = torch.from_numpy(load("digits", np.inf)[0])
    enlarged = F.interpolate(X.unsqueeze(1), (size, size), mode="bilinear")
    enlarged = (enlarged.squeeze(1) * (255 / X.max())).byte().numpy()
    chosen = enlarged[draw.integers(len(X), size=n)]
    for image, shift in zip(
        chosen, draw.integers(-SHIFT, SHIFT + 1, (n, 2)), strict=True
    ):
        image[:] = np.roll(image, shift, axis=(0, 1))
    return chosen


def networks(model, batches):
    """Student and teacher of ready batches, nothing else."""
    student, teacher = model.student, model.teacher
    with torch.inference_mode():
        for batch in batches:
            teacher.experts(in_pieces(teacher.backbone, batch))
            features = in_pieces(student.backbone, batch)
            student.experts(features)
            student.gate(features)


def memory_of(function, *args):
    """Bytes that a call takes at its peak beyond those held before it."""
    reset = Path("/proc/self/clear_refs")
    if not reset.exists():
        return None
    reset.write_text("5")  # forgets the peak so far
    before = resident("VmRSS")
    function(*args)
    return resident("VmHWM") - before


def resident(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(name)]
    return 1024 * int(line.split()[1])


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=60_000)
    parser.add_argument("--image-size", type=int, default=28)
    add_backbone(parser)
    parser.add_argument("--epochs", type=int, default=4, help="of the model's training")
    parser.add_argument("--n-clusters", type=int, default=10)
    parser.add_argument("--queue-size", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where to write the results")
    options = parser.parse_args(argv)
    limit_threads(options.threads)
    X = moved_digits(options.n, options.image_size)
    mice = MiCEClustering(
        options.n_clusters,
        backbone=backbone(options),
        queue_size=options.queue_size,
        max_epochs=options.epochs,
        device="cpu",
        random_state=0,
    ).fit(X[: max(options.queue_size, FITTED)])
    memory = memory_of(mice.predict, X)
    batch = torch.zeros(LARGEST_BATCH, 1, *X.shape[1:])
    batch = batch.contiguous(memory_format=torch.channels_last)
    whole, rest = divmod(options.n, LARGEST_BATCH)
    batches = [batch] * whole + [batch[:rest]] * bool(rest)
    runs = {
        "predict": (mice.predict, X),
        "predict_proba": (mice.predict_proba, X),
        "networks": (networks, mice._model, batches),
    }
    times = {name: [] for name in runs}
    for _ in range(options.repeats):
        for name, run in runs.items():
            times[name].append(timed(*run)[1])
    medians = {name: statistics.median(values) for name, values in times.items()}
    result = {
        "seconds": medians,
        "images_per_second": options.n / medians["predict"],
        "throughput_to_networks": medians["networks"] / medians["predict"],
        "predict_proba_to_networks": medians["networks"] / medians["predict_proba"],
        "memory_bytes": memory,
    }
    report(options.json, __file__, argv, result)


if __name__ == "__main__":
    main()
