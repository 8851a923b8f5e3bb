"""Where the time of a training step goes: the step of `fit` against its bare networks.

In one run, interleaved, with medians: the whole step as `fit` runs it, the networks
alone (the same modules, shapes, precision and layout, forward and backward), each other
part of the step alone, a whole step of MoCo, and the paper's pseudocode with the same
networks.

    python benchmarks/train_step.py --device cpu
    python benchmarks/train_step.py --backbone resnet18 --image-size 32 --channels 3
                                    --batch-size 64
    python benchmarks/train_step.py --device cuda --backbone resnet34 --max-pool
                                    --image-size 32 --channels 3 --queue-size 16384
    python benchmarks/train_step.py --n-clusters 1000
    python benchmarks/train_step.py --heads own
"""

import argparse
import dataclasses
import statistics
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from _common import (
    RESULTS,
    add_backbone,
    backbone,
    limit_threads,
    peak_memory,
    write_json,
)
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode
from torchvision.transforms import v2

from sk_mice import MoCo
from sk_mice._checkpoint import Run
from sk_mice._engine import objective
from sk_mice._engine.ambient import kept_memory
from sk_mice._engine.distributed import ALONE
from sk_mice.ablations import PaperMiCE

LARGE = {"cuda": 8192, "cpu": 2048}  # rows of a large matrix


def add_step(parser) -> None:
    """Options of the model and of its data, which `Step` reads."""
    add_backbone(parser)
    parser.add_argument("--image-size", type=int, default=28)
    parser.add_argument("--channels", type=int, choices=[1, 3], default=1)
    parser.add_argument("--batch-size", type=int, default=256, help="of all processes")
    parser.add_argument("--n-clusters", type=int, default=10)
    parser.add_argument("--queue-size", type=int, default=4096)
    parser.add_argument("--heads", choices=["own", "shared"], default="shared")
    parser.add_argument("--gate-view", choices=["own", "student"], default="own")
    parser.add_argument(
        "--precision",
        default="auto",
        help="of the networks: auto is bfloat16 where the hardware has it",
    )


class Step:
    """A step of training, whole and in parts, on random images.

    Parameters
    ----------
    options : argparse.Namespace
    moco : bool, default=False
        Whether it is a step of MoCo.
    group : Group, default=ALONE
        The processes that share it.
    """

    def __init__(self, options, moco=False, group=ALONE):
        side, n_batches = options.image_size, 8
        shape = (options.batch_size * n_batches, side, side, options.channels)
        self.X = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        shared = {
            "backbone": backbone(options),
            "queue_size": options.queue_size,
            "batch_size": options.batch_size,
            "device": options.device,
            "precision": options.precision,
        }
        estimator = MoCo(**shared)
        if not moco:
            estimator = PaperMiCE(
                options.n_clusters,
                expert_heads=options.heads,
                gate_view=options.gate_view,
                **shared,
            )
        X = estimator._check(self.X)
        # A queue as long as asked for, however few images there are.
        task = estimator._prepare(X, group)
        task = dataclasses.replace(task, queue_size=options.queue_size)
        self.model = estimator._first_model(task, seed=0)
        self.trainer = estimator._make_trainer(
            Run(seed=0), self.model, task, 1, "moco" if moco else "em"
        )
        self.device = task.device
        self.trainer.n_steps_ = n_batches
        self.trainer.initialize()
        self.trainer.on_train_begin(self.trainer, X=task.samples)
        self.trainer.history.new_epoch()
        self.trainer.on_epoch_begin(self.trainer)
        self.batches = self._endless(task.samples)
        self.batch = next(self.batches)
        self.views = self.trainer.make_views(self.batch)
        with torch.no_grad():  # inputs of the objective
            self.f, self.v, self.g = self.model.embed(self.views)

    def _endless(self, samples):
        while True:
            yield from self.trainer.get_iterator(samples, training=True)

    # ------------------------------------------------------------------------ parts

    def whole(self):
        self.trainer.train_step(next(self.batches))

    def networks(self):
        """Student and teacher on their views, with their heads."""
        with self.trainer._autocast(self.device):
            f, _, g = self.model.embed(self.views)
        (f.sum() + g.sum()).backward()
        self.model.zero_grad(set_to_none=True)

    def make_views(self):
        self.trainer.make_views(self.batch)

    def objective(self):
        f, g = self.f.clone().requires_grad_(), self.g.clone().requires_grad_()
        joint = self.model.log_joint(f, self.v, g)
        (-objective.elbo(joint).mean()).backward()

    def optimizer(self):
        for parameter in self.model.student.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self.trainer.optimizer_.step()
        self.model.update_teacher(0.99)

    def queue(self):
        self.model.enqueue(self.v)

    def data(self):
        next(self.batches)


class Paper:
    """The paper's pseudocode (Algorithm 1): the same networks, all else as written."""

    def __init__(self, step, options):
        self.step, self.model = step, step.model
        self.images = torch.from_numpy(step.X).permute(0, 3, 1, 2)
        colour = [v2.ColorJitter(0.4, 0.4, 0.4, 0.4)]
        if options.channels == 3:
            colour.insert(0, v2.RandomGrayscale(0.2))
        self.transform = v2.Compose(
            [
                v2.RandomResizedCrop(options.image_size, scale=(0.2, 1.0)),
                *colour,
                v2.RandomHorizontalFlip(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.5] * options.channels, [0.25] * options.channels),
            ]
        )
        self.queue = step.model.queue.float().clone()
        self.optimizer = torch.optim.SGD(
            [p for p in self.model.parameters() if p.requires_grad],
            lr=1e-3,
            momentum=0.9,
            weight_decay=1e-4,
        )

    def whole(self):
        model, step = self.model, self.step
        n_samples = len(step.batch[0])
        images = self.images[torch.randperm(len(self.images))[:n_samples]]
        # The loader makes the three views of each image, one image after the other.
        views = [
            torch.stack([self.transform(image) for image in images]) for _ in range(3)
        ]
        views = [
            view.to(step.device).contiguous(memory_format=torch.channels_last)
            for view in views
        ]
        student = model.student
        with step.trainer._autocast(step.device):
            with torch.no_grad():
                v = model.teach(views[0])
            f = student.expert_embeddings(student.backbone(views[1]))
            g = student.gating_embeddings(student.backbone(views[2]))
        mu = F.normalize(model.expert_prototypes, dim=-1)
        positive = torch.einsum("bkd,bkd->bk", v, f) + torch.einsum("bkd,kd->bk", v, mu)
        queue = self.queue.detach().clone()
        negative = torch.einsum("vkd,bkd->bkv", queue, f)
        negative = negative + torch.einsum("vkd,kd->kv", queue, mu).unsqueeze(0)
        logits = torch.cat([positive.unsqueeze(2), negative], dim=2) / model.tau
        experts = torch.softmax(logits, dim=2)[:, :, 0]
        gating = torch.softmax(g @ model.gating_prototypes.T / model.kappa, dim=1)
        joint = experts * gating
        q = (joint / joint.sum(dim=1, keepdim=True)).detach()
        loss = -(q * (joint.log() - q.log())).sum(dim=1).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            pairs = zip(
                model.teacher.parameters(),
                [*student.backbone.parameters(), *student.experts.parameters()],
                strict=True,
            )
            for slow, fast in pairs:
                slow.mul_(0.99).add_(fast, alpha=0.01)
            self.queue = torch.cat([v, self.queue])[: len(self.queue)]


def seconds(part, device):
    synchronise = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    synchronise()
    start = time.perf_counter()
    part()
    synchronise()
    return time.perf_counter() - start


def ceiling(device, dtype):
    """FLOP/s of a large matrix product, the best of several."""
    size = LARGE[device.type]
    a = torch.randn(size, size, device=device, dtype=dtype)
    best = min(seconds(lambda: a @ a, device) for _ in range(7))
    return 2 * size**3 / best


def measure(options):
    torch.manual_seed(0)
    step = Step(options)
    keep = nullcontext if options.give_back else kept_memory  # as in `fit`
    with keep(step.device):
        first = seconds(step.whole, step.device)
        for _ in range(2):
            step.whole()
        memory = peak_memory(step.device)  # before anything else has its own
    parts = {
        "whole step": step.whole,
        "networks": step.networks,
        "views": step.make_views,
        "objective": step.objective,
        "optimizer, teacher": step.optimizer,
        "queue": step.queue,
        "data": step.data,
    }
    parts["whole step of MoCo"] = Step(options, moco=True).whole
    if step.trainer.replayed_ is not None:
        plain = Step(options)
        plain.trainer.replayed_ = None
        parts["whole step, without graphs"] = plain.whole
    if options.paper:
        parts["paper's pseudocode"] = Paper(step, options).whole
    counter = FlopCounterMode(display=False)
    with counter:
        step.networks()
    times = {name: [] for name in parts}
    with keep(step.device):
        for part in parts.values():  # warm up
            seconds(part, step.device)
        for _ in range(options.repeats):
            for name, part in parts.items():
                times[name].append(seconds(part, step.device))
    medians = {name: statistics.median(values) for name, values in times.items()}
    dtype = step.trainer.autocast_dtype or torch.float32
    flops, best = counter.get_total_flops(), ceiling(step.device, dtype)
    whole = medians["whole step"]
    by_paper = medians["paper's pseudocode"] / whole if options.paper else None
    return {
        "seconds": medians,
        "ratio_to_networks": whole / medians["networks"],
        "ratio_to_moco": whole / medians["whole step of MoCo"],
        "throughput_to_paper": by_paper,
        "images_per_second": options.batch_size / whole,
        "network_flops": flops,
        "ceiling_flops_per_second": best,
        "utilisation": flops / whole / best,
        "peak_memory_bytes": memory,
        "first_step_seconds": first,
        "precision": str(dtype).removeprefix("torch."),
    }


def report(result):
    for name, value in result["seconds"].items():
        share = value / result["seconds"]["networks"]
        print(f"{name:20s} {1e3 * value:9.2f} ms  {share:6.3f} of the networks")
    print(f"step / networks      {result['ratio_to_networks']:.3f}")
    print(f"step / MoCo's        {result['ratio_to_moco']:.3f}")
    if result["throughput_to_paper"] is not None:
        print(f"throughput / paper's {result['throughput_to_paper']:.2f}")
    print(f"images a second      {result['images_per_second']:.0f}")
    best = f"{result['ceiling_flops_per_second'] / 1e12:.2f} TFLOP/s"
    print(f"utilisation          {result['utilisation']:.3f} of {best}")
    print(f"first step           {result['first_step_seconds']:.2f} s")
    print(f"peak memory          {result['peak_memory_bytes'] / 2**20:.0f} MiB")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    add_step(parser)
    parser.add_argument(
        "--no-paper",
        dest="paper",
        action="store_false",
        help="without the paper's pseudocode, whose memory grows as B x K x V",
    )
    parser.add_argument(
        "--give-back",
        action="store_true",
        help="memory that a step frees to the system, as glibc does by itself",
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument(
        "--json", type=Path, help="where to write; else in results/, named by the case"
    )
    parser.add_argument("--max-ratio", type=float, help="exit 1 above this ratio")
    options = parser.parse_args(argv)
    # The paper's pseudocode has a head for each expert.
    options.paper &= options.heads == "own" and options.gate_view == "own"
    limit_threads(options.threads)
    result = measure(options)
    report(result)
    network = options.backbone + ("-maxpool" if options.max_pool else "")
    case = f"{options.device}_{network}_{options.n_clusters}"
    case += "_own_heads" if options.heads == "own" else ""
    case += "_student_view" if options.gate_view == "student" else ""
    path = options.json or RESULTS / f"train_step_{case}.json"
    write_json(path, __file__, argv, result)
    ratio = result["ratio_to_networks"]
    if options.max_ratio is not None and ratio > options.max_ratio:
        sys.exit(f"step / networks = {ratio:.3f}, above {options.max_ratio}")


if __name__ == "__main__":
    main()
