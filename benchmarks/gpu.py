"""All that is measured on a GPU, by one command.

The stages are the machine, the tests that need a GPU, steps of training against their
bare networks, the fits of hours.py, a first stage with small maps, and CIFAR-10 (JPEG)
clustered by MiCE and by MoCo in the same time. Each is a process of its own, takes less
than ten minutes on an H100, and writes a file of results. It is not run again if there
is a file of this code and this GPU, so a run that was cut off goes on with the stage
that it was at; --stage chooses stages by name.

No network is needed: --path names the archive of CIFAR-10 (JPEG), files
`train/CLASS/NUMBER.jpg` and `test/...` of 32 x 32 pixels in a tar file. Without it the
clusterings are left out. Afterwards benchmarks/results_page.py shows the files.

    python benchmarks/gpu.py --list
    python benchmarks/gpu.py --path cifar10-jpeg.tar.xz
    python benchmarks/gpu.py --stage tests step_resnet18 --minutes 10
    python benchmarks/gpu.py --stage hours_moco --path cifar10-jpeg.tar.xz
    python benchmarks/gpu.py --device cpu --tiny --out folder   # shows that it runs
"""

import argparse
import importlib
import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import compare
import torch
import train_step
from _common import RESULTS, limit_threads, read_json, write_json
from reproduce import ROOT, code

from sk_mice import MiCEClustering

TESTS = ("tests/test_cuda.py",)
OUTCOMES = ("passed", "failed", "error", "skipped")
CIFAR = ("--image-size", "32", "--channels", "3", "--queue-size", "16384")
FIRST_STEP = "resnet18"  # the network of `backbone="auto"`; its time sizes the fits
STEPS = {  # options of train_step.py
    FIRST_STEP: (*CIFAR, "--backbone", "resnet18"),
    "resnet18_own_heads": (*CIFAR, "--backbone", "resnet18", "--heads", "own"),
    "resnet34_maxpool": (*CIFAR, "--backbone", "resnet34", "--max-pool"),
}
# Epochs of hours.py, which take over three hours of a core, and those between scores.
HOURS = {"moco": (72, 12), "mice": (66, 11), "mice-random": (36, 6)}
SMALL_MAPS_CASES = ("full maps", "small maps, then full ones")
# For small_maps.py, how much longer an epoch on full maps takes on a CPU.
SMALL_MAPS = {"fashion-mnist": 2.446, "cifar10-jpeg": 2.121}
TINY = ("--backbone", "resnet-small", "--width", "4", "--image-size", "16")
TINY = (*TINY, "--batch-size", "16", "--queue-size", "64", "--repeats", "1")
SEEDS = (0, 1)
FIT_MINUTES = 3.0  # of MiCE, and of MoCo after it; the rest of a stage is on the CPU
RESTARTS = 10  # of k-means; 100 would take longer than the fits
LIMIT = 570  # seconds of a stage


@dataclass(frozen=True)
class Stage:
    """A part of the run, and its time on an H100."""

    name: str
    minutes: float
    run: Callable  # of the options and the path of the file
    seed: int | None = None  # of the clusterings, whose seeds share a file
    needs_path: bool = False

    @property
    def file(self):
        """In the folder of results."""
        name = self.name if self.seed is None else "cifar10_jpeg"
        return f"gpu_{name.replace('-', '_')}.json"


# ------------------------------------------------------------------------ the stages


def environment(options, path):
    found = {"platform": platform.platform(), "cuda": torch.version.cuda}
    if torch.cuda.is_available():
        device = torch.cuda.get_device_properties(0)
        found |= {
            "gpu": device.name,
            "memory_gb": device.total_memory / 1e9,
            "capability": f"{device.major}.{device.minor}",
            "cudnn": torch.backends.cudnn.version(),
        }
    write_json(path, __file__, [], found)


def tests(options, path):
    """How many tests passed, and what pytest says of those that did not."""
    words = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=short", *TESTS]
    start = time.monotonic()
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    seconds = time.monotonic() - start
    print(done.stdout, done.stderr, flush=True)
    summary = (done.stdout.strip().splitlines() or [""])[-1]
    counts = {
        outcome: sum(map(int, re.findall(rf"(\d+) {outcome}", summary)))
        for outcome in OUTCOMES
    }
    said = done.stdout[-5000:] if done.returncode else ""
    results = {**counts, "seconds": seconds}
    write_json(path, __file__, [], results, output=said)
    if done.returncode:
        sys.exit(f"tests must pass; got {summary or done.stderr}")


def step(name, options, path):
    words = [*STEPS[name], *(TINY if options.tiny else ())]
    common = ("--device", options.device, "--threads", str(options.threads))
    train_step.main([*words, *common, "--no-paper", "--json", str(path)])


def hours(fit, options, path):
    """With another seed than on a CPU."""
    epochs, every = HOURS[fit]
    words = ["--path", str(options.path), "--epochs", str(epochs)]
    if options.tiny:
        words = ["--data", "digits", "--n", "60", "--width", "4", "--epochs", "2"]
    words += ["--fit", fit, "--every", str(every), "--seeds", "1"]
    with TemporaryDirectory() as folder:
        run_script("hours", [*words, "--folder", folder], options, path)


def small_maps(data, options, path):
    words = ["--data", data, "--epochs", "72", "--ratio", str(SMALL_MAPS[data])]
    if data == "cifar10-jpeg":
        words += ["--path", str(options.path)]
    if options.tiny:
        words = ["--data", "digits", "--n", "60", "--epochs", "2", "--ratio", "2"]
    seeds = ["0"] if options.tiny else ["0", "1", "2"]
    words += ["--seeds", *seeds, "--cases", *SMALL_MAPS_CASES]
    run_script("small_maps", words, options, path)


def run_script(name, words, options, path):
    words = [*words, "--threads", str(options.threads), "--json", str(path)]
    importlib.import_module(name).main(words)


def clusterings(seed, options, path):
    """MiCE, and MoCo in the same time with each of its second stages."""
    n = 60 if options.tiny else 60_000
    words = ["--data", "cifar10-jpeg", "--path", str(options.path)]
    if options.tiny and options.path is None:
        words = ["--data", "digits"]
    words += ["--n", str(n), "--epochs", str(n_epochs(options, n))]
    words += ["--seeds", str(seed), "--cases", "moco"]
    words += ["--threads", str(options.threads), "--json", str(path)]
    if is_current(path):  # with other seeds
        words.append("--resume")
    compare.RESTARTS = RESTARTS
    # Of 60,000 rows it takes many minutes.
    compare.SECOND_STAGES.pop("MoCo, UMAP, Gaussians, on features", None)
    compare.main(words)


def n_epochs(options, n_samples):
    """Epochs of MiCE that take `FIT_MINUTES`, by the time of a step."""
    if options.tiny:
        return 2
    path = options.out / f"gpu_step_{FIRST_STEP}.json"
    if not is_current(path):
        sys.exit(f"the clusterings must come after the stage step_{FIRST_STEP}")
    times = read_json(path)["results"]["seconds"]
    share = MiCEClustering._init_share
    a_step = share * times["whole step of MoCo"] + (1 - share) * times["whole step"]
    return max(2, round(60 * FIT_MINUTES / (a_step * n_samples / 256)))


STAGES = (
    Stage("environment", 0.2, environment),
    Stage("tests", 4, tests),
    *(Stage(f"step_{s}", 2, partial(step, s)) for s in STEPS),
    *(Stage(f"hours_{fit}", 4, partial(hours, fit), needs_path=True) for fit in HOURS),
    *(
        Stage(
            f"small_maps_{data}",
            3,
            partial(small_maps, data),
            needs_path=data == "cifar10-jpeg",
        )
        for data in SMALL_MAPS
    ),
    *(Stage(f"cifar10_{s}", 8, partial(clusterings, s), s, True) for s in SEEDS),
)


# -------------------------------------------------------------------- what is to do


def place() -> dict:
    """The code and the device, by which a file tells whether it is of this run."""
    cuda = torch.cuda.is_available()
    return {"code": code(), "gpu": torch.cuda.get_device_name() if cuda else None}


def is_current(path) -> bool:
    return place().items() <= read_json(path).items()


def is_done(stage, path) -> bool:
    if stage.seed is None or not is_current(path):
        return is_current(path)
    rows = read_json(path)["results"]["MiCE"]
    return stage.seed in [row["seed"] for row in rows]


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [stage.name for stage in STAGES]
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--path", type=Path, help="the archive of CIFAR-10 (JPEG)")
    parser.add_argument("--stage", nargs="+", choices=names, default=names)
    parser.add_argument(
        "--minutes", type=float, default=60, help="begin no stage that would take more"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the files")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--tiny", action="store_true", help="a few images and steps")
    parser.add_argument("--list", action="store_true", help="run nothing")
    options = parser.parse_args(argv)
    if options.tiny and options.out == RESULTS:
        parser.error("--tiny needs --out, as its figures are no results")
    there = options.device == "cpu" or torch.cuda.is_available()
    if not (there or options.list):
        parser.error("--device must be there; got cuda, which torch does not see")
    options.argv = argv
    return options


def why_not(stage, options):
    """Why a stage is not run, or None."""
    if is_done(stage, options.out / stage.file):
        return "done"
    if stage.needs_path and options.path is None and not options.tiny:
        return "needs --path"
    return None


def run_here(stage, options):
    path = options.out / stage.file
    stage.run(options, path)
    # What a stage calls does not know of `RESTARTS`.
    command = {"command": f"python benchmarks/gpu.py --stage {stage.name}"}
    kept = json.dumps(read_json(path) | command | place(), indent=1)
    path.write_text(f"{kept}\n", encoding="utf-8")


def run_apart(stage, options):
    """None, or why the stage failed: an error of a GPU is one for the whole process."""
    words = [sys.executable, __file__, *options.argv, "--stage", stage.name]
    try:
        status = subprocess.run(words, timeout=LIMIT).returncode
    except subprocess.TimeoutExpired:
        return f"more than {LIMIT} s"
    return f"exit code {status}" if status else None


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    options, start = parse(argv), time.monotonic()
    limit_threads(options.threads)
    asked = [stage for stage in STAGES if stage.name in options.stage]
    reasons = {stage: why_not(stage, options) for stage in asked}
    for stage, reason in reasons.items():
        print(
            f"{stage.name:24} {stage.minutes:4g} min  {reason or 'to run'}", flush=True
        )
    to_run = [stage for stage, reason in reasons.items() if reason is None]
    if options.list or not to_run:
        return
    if len(asked) == 1:
        run_here(asked[0], options)
        return
    failed = {}
    for stage in to_run:
        spent = (time.monotonic() - start) / 60
        if spent + stage.minutes > options.minutes:
            failed[stage.name] = f"no time is left of {options.minutes:g} minutes"
            continue
        print(f"\n{stage.name}", flush=True)
        if reason := run_apart(stage, options):
            failed[stage.name] = reason
    print("\n`python benchmarks/results_page.py` shows the files")
    if failed:
        lines = [f"  {name}: {reason}" for name, reason in failed.items()]
        sys.exit("\n".join(["not done:", *lines]))


if __name__ == "__main__":
    main()
