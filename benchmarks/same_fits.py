"""Whether an earlier commit fits as the present one does, bit for bit.

Scores of results that are older than a release are those of the release if it does.
Short fits of each kind are made at each commit of the results, each in a process of its
own, and their labels, posteriors and embeddings are compared. No scores are computed.
Results are written after each commit, and a run that was cut off goes on.

    python benchmarks/same_fits.py
    python benchmarks/same_fits.py --commits 02a0bbe ff9e08d
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
from _commit import ROOT
from _commit import commit as this_commit
from sklearn.datasets import load_digits, load_sample_image, load_wine
from sklearn.preprocessing import scale


def fits():
    """Class, samples and parameters of each fit, by what a reader knows it as."""
    digits = (load_digits().images[:600] / 16).astype(np.float32)
    photo = load_sample_image("china.jpg")[:416, :640].reshape(13, 32, 20, 32, 3)
    photos = photo.swapaxes(1, 2).reshape(-1, 32, 32, 3)
    vectors = scale(load_wine().data).astype(np.float32)
    rows = np.random.RandomState(0).normal(size=(3000, 32)).astype(np.float32)

    mice, paper = "sk_mice.MiCEClustering", "sk_mice.ablations.PaperMiCE"
    short = {"max_epochs": 3, "device": "cpu"}
    ten, three = short | {"n_clusters": 10}, short | {"n_clusters": 3}
    of_paper = ten | {"init": "random", "schedule": "step"}
    ablated = {"expert_prototypes": "gradient", "gating_prototypes": "uniform"}
    resnet18 = {"backbone": "resnet18", "max_epochs": 1}
    longer = three | {"max_epochs": 20, "batch_size": 64}
    neighbours = longer | {"n_neighbors": 10, "augmentation": None}
    return {
        "MiCE on grey images": (mice, digits, ten),
        "MiCE on colour images": (mice, photos, three),
        "MiCE on vectors": (mice, vectors, three),
        "MiCE with neighbours": (mice, vectors, neighbours),
        "MiCE from random weights": (mice, digits, ten | {"init": "random"}),
        "MiCE with heads of their own": (mice, digits, ten | {"expert_heads": "own"}),
        "MiCE in float32": (mice, digits, ten | {"precision": "float32"}),
        "MiCE with small batches": (mice, digits, ten | {"batch_size": 64}),
        "MiCE with ResNet-18": (mice, photos[:64], three | resnet18),
        "MiCE of the paper": (paper, digits, of_paper),
        "an ablation of the paper": (paper, digits, of_paper | ablated),
        "MoCo": ("sk_mice.MoCo", digits, short),
        "spherical k-means": ("sk_mice.SphericalKMeans", rows, {"n_clusters": 10}),
        "ClassificationEM": ("sk_mice.ClassificationEM", vectors, {"n_clusters": 3}),
        "NeighborMixture": ("sk_mice.NeighborMixture", vectors, {"n_clusters": 3}),
    }


def digests() -> dict:
    """Of the labels and of all outputs of each fit; None if the commit lacks it."""
    warnings.simplefilter("ignore")  # such short fits do not converge
    found = {}
    for name, (cls, X, parameters) in fits().items():
        try:
            estimator = resolve_name(cls)(**parameters, random_state=0).fit(X)
        except (ImportError, AttributeError, TypeError, ValueError):
            found[name] = None
            continue
        outputs = {"labels": getattr(estimator, "labels_", None)}
        for method in ("predict_proba", "transform"):
            if hasattr(estimator, method):
                outputs[method] = getattr(estimator, method)(X)
        found[name] = {
            what: hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
            for what, values in outputs.items()
            if values is not None
        }
    return found


@contextmanager
def checked_out(commit: str):
    """A folder with the files of a commit, for a while."""
    tree = ["git", "-C", ROOT, "worktree"]
    with tempfile.TemporaryDirectory() as folder:
        add = [*tree, "add", "-qf", "--detach", folder, commit]
        subprocess.run(add, check=True)
        try:
            yield folder
        finally:
            subprocess.run([*tree, "remove", "-f", folder], check=True)


def digests_at(root) -> dict:
    """:func:`digests` with the package of a folder, on one thread."""
    own = {"PYTHONPATH": os.fspath(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, __file__, "--digests"],
        env=os.environ | own,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def compared(earlier: dict | None, present: dict) -> dict:
    """1 for each output that has the same bits, else 0; none if a fit is missing."""
    if earlier is None:
        return {}
    return {
        what: float(earlier.get(what) == digest) for what, digest in present.items()
    }


def commits_of(results: Path) -> list[str]:
    """All commits that the files of results name, also in their notes."""
    found = set()
    for path in results.rglob("*.json"):
        kept = json.loads(path.read_text(encoding="utf-8"))
        if path.stem != Path(__file__).stem:
            found |= {kept["commit"], *kept.get("commits", {}).values()}
            found |= set(re.findall(r"\b[0-9a-f]{7}\b", kept.get("note", "")))
    return sorted(found)


def main(argv=None):
    from _common import RESULTS, read_json, write_json

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commits", nargs="+", help="[default: all of the results]")
    parser.add_argument("--json", type=Path, default=RESULTS / "same_fits.json")
    options = parser.parse_args(argv)
    present = digests_at(ROOT)
    if None in present.values():
        sys.exit(f"{ROOT} must have all of the fits; got {present}")
    kept = read_json(options.json)
    results = kept["results"] if kept.get("commit") == this_commit() else {}
    for commit in options.commits or commits_of(RESULTS):
        if commit in results:
            continue
        with checked_out(commit) as folder:
            earlier = digests_at(folder)
        results[commit] = {
            name: compared(earlier[name], digest) for name, digest in present.items()
        }
        others = {
            name: same
            for name, same in results[commit].items()
            if not same or min(same.values()) < 1
        }
        print(commit, others or "the same", flush=True)
        write_json(options.json, __file__, argv, results)


if __name__ == "__main__":
    if sys.argv[1:] == ["--digests"]:  # with a package of which `_common` knows nothing
        print(json.dumps(digests()))
    else:
        main()
