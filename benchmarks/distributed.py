"""What several processes bring: a shared step against one process, and bare networks.

On one machine, in one run, interleaved, with medians: a whole step of the fit in one
process while the others wait, the same step shared by all, and the bare networks in
both ways. What is lost beside the bare networks is what sharing costs. Seconds of the
cores are measured as well: unlike those of the clock, they do not count the work of
other programs, nor the waiting for a message.

From the bytes of a step, and from figures of a GPU and its links, which are stated and
not measured, follows what to expect of more GPUs.

    python benchmarks/distributed.py
    python benchmarks/distributed.py --backbone resnet34 --image-size 32 --channels 3
                                     --queue-size 16384 --heads own
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch.distributed as dist
from _common import RESULTS, limit_threads, write_json
from torch.utils.flop_counter import FlopCounterMode
from train_step import Step, add_step

from sk_mice._engine.ambient import kept_memory
from sk_mice._engine.distributed import open_group

GPUS = (1, 8, 64)
WASTED = 0.5  # efficiency at which more GPUs are not worth it
LARGEST = 4096  # GPUs


# ----------------------------------------------------------------------------- measured


class Shared(Step):
    """A step of a fit that the processes of a group share."""

    def whole(self):
        self.trainer.group.any_at_last_step(False)
        super().whole()


def measure(options) -> dict:
    """Seconds of the clock and of all cores, in every process of the group."""
    group = open_group(True)
    alone, shared = Step(options), Shared(options, group=group)
    parts = {  # what runs, and in the first process only or in all
        "step, one process": (alone.whole, True),
        "step, shared": (shared.whole, False),
        "networks, one process": (alone.networks, True),
        "networks, shared": (shared.networks, False),
    }
    rows = {name: [] for name in parts}
    with kept_memory(alone.device):
        for repeat in range(-1, options.repeats):  # the first one warms up
            for name, (part, by_first) in parts.items():
                group.barrier()  # all begin together
                found = [0.0, 0.0]
                if group.first or not by_first:
                    found = seconds(part, options.steps)
                if repeat >= 0:
                    rows[name].append(found)
    every = [rows]
    if group.size > 1:
        every = [None] * group.size
        dist.all_gather_object(every, rows)
    counter = FlopCounterMode(display=False)
    with counter:
        alone.networks()
    group.close(failed=False)
    times = {
        name: {
            "clock": statistics.median(
                max(r[name][i][0] for r in every) for i in range(options.repeats)
            ),
            "cores": statistics.median(
                sum(r[name][i][1] for r in every) for i in range(options.repeats)
            ),
        }
        for name in parts
    }
    return {
        "seconds": times,
        "efficiency": {
            clock: efficiencies(times, clock, group.size)
            for clock in ("clock", "cores")
        },
        "bytes": step_bytes(alone.model, options.batch_size),
        "network_flops": counter.get_total_flops(),
        "precision": str(alone.trainer.autocast_dtype or "float32"),
    }


def seconds(part, n: int) -> list[float]:
    """Of one call, in the mean of n: of the clock, and of the cores."""
    clock, cores = time.perf_counter(), time.process_time()
    for _ in range(n):
        part()
    return [(time.perf_counter() - clock) / n, (time.process_time() - cores) / n]


def efficiencies(times, clock: str, size: int) -> dict:
    """The share of the processes' work that one process would have done as well."""
    n = size if clock == "clock" else 1  # seconds of the cores are those of all

    def of(what):
        return times[f"{what}, one process"][clock] / (
            n * times[f"{what}, shared"][clock]
        )

    return {
        "step": of("step"),
        "networks": of("networks"),
        "step to networks": of("step") / of("networks"),
    }


def step_bytes(model, batch_size: int) -> dict:
    """What a step sends: gradients, and the embeddings of a batch for the queue."""
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    rows = batch_size * model.queue[0].numel()
    return {
        "gradients": 4 * trained,
        "embeddings": model.queue.element_size() * rows,
    }


# ----------------------------------------------------------------------------- expected


def expect(found: dict, options) -> list[dict]:
    """Efficiency of more GPUs, from bytes and FLOPs of a step and the stated figures.

    A ring sends gradients around twice; two thirds of the networks' time, their
    backward pass, hide it. Embeddings go around once, and nothing hides them.
    """
    return [
        {"fixed": fixed, "gpus": n, "efficiency": efficiency(found, options, n, total)}
        for fixed, total in batches(options)
        for n in GPUS
        if total is None or total >= 2 * n
    ]


def batches(options):
    """What stays as it is while GPUs are added, and the images of all, if that."""
    return [("batch of each GPU", None), ("batch of all", options.batch_size)]


def efficiency(found, options, n: int, total: int | None) -> float:
    """Of n GPUs, which share `total` images, or have the measured batch each."""
    if n == 1:
        return 1.0
    own = options.batch_size if total is None else total / n
    share = own / options.batch_size
    in_one = n <= options.gpus_of_a_machine
    link = options.link if in_one else options.network
    compute = share * found["network_flops"] / options.flops
    latency = math.log2(n) * options.latency  # messages go along a tree
    gradients = 2 * (n - 1) / n * found["bytes"]["gradients"] / link + 2 * latency
    embeddings = (n - 1) * share * found["bytes"]["embeddings"] / link + latency
    exposed = max(0.0, gradients - 2 / 3 * compute)
    return compute / (compute + exposed + embeddings)


def where_it_ends(found, options) -> dict:
    """The most GPUs, as powers of two, at an efficiency of a half and more."""
    ends = {}
    for fixed, total in batches(options):
        n = 1
        while n < LARGEST and (total is None or total >= 4 * n):
            if efficiency(found, options, 2 * n, total) < WASTED:
                break
            n *= 2
        ends[fixed] = n
    return ends


# ------------------------------------------------------------------------------ report


def report(result, options) -> None:
    print(f"{options.processes} processes, one thread each")
    for name, row in result["seconds"].items():
        print(f"{name:24}{1e3 * row['clock']:9.1f} ms{1e3 * row['cores']:9.1f} ms")
    print(f"{'':24}{'clock':>12}{'cores':>12}")
    for name in ("step", "networks", "step to networks"):
        by_clock, by_cores = (
            result["efficiency"][clock][name] for clock in ("clock", "cores")
        )
        print(f"efficiency, {name:17}{by_clock:7.3f}{by_cores:12.3f}")
    for name, n in result["bytes"].items():
        print(f"{name:24}{n / 1e6:9.2f} MB a step")
    print(
        f"expected at {options.flops / 1e12:g} TFLOP/s of a GPU, "
        f"{options.link / 1e9:g} GB/s in a machine of {options.gpus_of_a_machine}, "
        f"{options.network / 1e9:g} GB/s between machines (stated, not measured)"
    )
    for row in result["expected"]:
        print(f"{row['gpus']:4} GPUs, {row['fixed']:18}{row['efficiency']:8.3f}")
    for fixed, n in result["ends"].items():
        print(f"efficiency of {WASTED:g} up to {n} GPUs, {fixed}")


def parser() -> argparse.ArgumentParser:
    of = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    of.add_argument("--processes", type=int, default=2)
    add_step(of)
    of.add_argument("--steps", type=int, default=3, help="of each measurement")
    of.add_argument("--repeats", type=int, default=9)
    of.add_argument(
        "--flops", type=float, default=1.5e14, help="a second, of a GPU on the networks"
    )
    of.add_argument(
        "--link", type=float, default=4e11, help="bytes/s between GPUs of a machine"
    )
    of.add_argument(
        "--network", type=float, default=5e10, help="bytes/s of a GPU between machines"
    )
    of.add_argument("--latency", type=float, default=5e-6, help="s of a message")
    of.add_argument("--gpus-of-a-machine", type=int, default=8)
    of.add_argument("--json", type=Path, help="where to write the results")
    of.add_argument("--measured", type=Path, help=argparse.SUPPRESS)
    of.set_defaults(device="cpu")
    return of


def run_processes(n: int, argv) -> dict:
    """What `measure` finds in n processes of torchrun."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "measured.json")
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={n}", __file__, *argv, f"--measured={path}"]
        subprocess.run(command, check=True)
        return json.loads(path.read_text(encoding="utf-8"))


def main(argv=None):
    argv = [*map(str, sys.argv[1:] if argv is None else argv)]
    options = parser().parse_args(argv)
    limit_threads(1)
    if options.measured is not None:  # a process of torchrun
        found = json.dumps(measure(options))
        if os.environ["RANK"] == "0":
            options.measured.write_text(found, encoding="utf-8")
        return
    if options.processes > 1:
        found = run_processes(options.processes, argv)
    else:
        found = measure(options)
    found["expected"] = expect(found, options)
    found["ends"] = where_it_ends(found, options)
    report(found, options)
    stated = ("flops", "link", "network", "latency", "gpus_of_a_machine")
    path = options.json or RESULTS / "distributed.json"
    more = {"stated": {name: getattr(options, name) for name in stated}}
    write_json(path, __file__, argv, found, **more)


if __name__ == "__main__":
    main()
