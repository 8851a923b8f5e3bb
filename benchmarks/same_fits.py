"""Whether an earlier commit fits as the present one does, bit for bit.

Scores of results that are older than a release are those of the release if it does.
Short fits of each kind are made at each commit of the results, each in a process of its
own, and their labels, posteriors and embeddings are compared. No scores are computed.

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
from pathlib import Path

SAME, LABELS, OTHER, ABSENT = "same", "same labels", "other", "absent"


def kinds():
    """The estimators and their samples, by what a reader knows the fits as."""
    import numpy as np
    from sklearn.datasets import load_digits, load_sample_image, load_wine
    from sklearn.preprocessing import scale

    import sk_mice
    from sk_mice import ablations, recipes

    digits = (load_digits().images[:600] / 16).astype(np.float32)
    photo = load_sample_image("china.jpg")[:416, :640].reshape(13, 32, 20, 32, 3)
    photos = photo.swapaxes(1, 2).reshape(-1, 32, 32, 3)
    vectors = scale(load_wine().data).astype(np.float32)
    rows = np.random.RandomState(0).normal(size=(3000, 32)).astype(np.float32)

    def mice(samples, n_clusters=10, cls=sk_mice.MiCEClustering, **parameters):
        common = {"max_epochs": 3, "random_state": 0, "device": "cpu"}
        return cls(n_clusters, **(common | parameters)), samples

    paper = {"cls": ablations.PaperMiCE, "init": "random", "schedule": "step"}
    moco = sk_mice.MoCo(max_epochs=3, random_state=0, device="cpu")
    return {
        "MiCE, grey images": lambda: mice(digits),
        "MiCE, random start": lambda: mice(digits, init="random"),
        "MiCE, heads of their own": lambda: mice(digits, expert_heads="own"),
        "MiCE, float32": lambda: mice(digits, precision="float32"),
        "MiCE, more clusters": lambda: mice(digits, 40, batch_size=64),
        "MiCE, colour images": lambda: mice(photos, 5),
        "MiCE, ResNet-18": lambda: mice(
            photos[:64], 3, backbone="resnet18", max_epochs=1
        ),
        "MiCE, vectors": lambda: mice(vectors, 3),
        "MiCE, vectors with neighbours": lambda: mice(
            vectors, 3, **(recipes.PHOTOS_QUICK | {"max_epochs": 3})
        ),
        "MiCE of the paper": lambda: mice(digits, **paper),
        "MiCE of the paper, prototypes by gradients": lambda: mice(
            digits, **paper, expert_prototypes="gradient", gating_prototypes="uniform"
        ),
        "MoCo": lambda: (moco, digits),
        "spherical k-means": lambda: (
            sk_mice.SphericalKMeans(10, random_state=0),
            rows,
        ),
        "ClassificationEM": lambda: (
            sk_mice.ClassificationEM(3, random_state=0),
            vectors,
        ),
        "NeighborMixture": lambda: (
            sk_mice.NeighborMixture(3, random_state=0),
            vectors,
        ),
    }


def digests() -> dict:
    """Of the labels and of all outputs of each fit; None if the commit lacks it."""
    import warnings

    import numpy as np

    warnings.simplefilter("ignore")  # such short fits do not converge
    found = {}
    for name, make in kinds().items():
        try:
            estimator, X = make()
            estimator.fit(X)
        except (AttributeError, TypeError, ValueError):
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


def digests_at(root) -> dict:
    """:func:`digests` with the package of a folder, on one thread."""
    own = {"PYTHONPATH": os.fspath(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, __file__, "--digests"],
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def compared(earlier: dict | None, present: dict | None) -> str:
    if earlier is None or present is None:
        return ABSENT
    if earlier == present:
        return SAME
    is_alike = "labels" in present and earlier.get("labels") == present["labels"]
    return LABELS if is_alike else OTHER


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
    from _commit import ROOT
    from _common import RESULTS, write_json

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commits", nargs="+", help="[default: all of the results]")
    parser.add_argument("--json", type=Path, default=RESULTS / "same_fits.json")
    options = parser.parse_args(argv)
    present = digests_at(ROOT)
    if None in present.values():
        sys.exit(f"{ROOT} must have all kinds of fits; got {present}")
    results = {}
    for commit in options.commits or commits_of(RESULTS):
        with tempfile.TemporaryDirectory() as folder:
            tree = ["git", "-C", ROOT, "worktree"]
            subprocess.run(
                [*tree, "add", "-qf", "--detach", folder, commit], check=True
            )
            try:
                earlier = digests_at(folder)
            finally:
                subprocess.run([*tree, "remove", "-f", folder], check=True)
        results[commit] = {
            name: compared(earlier.get(name), digest)
            for name, digest in present.items()
        }
        others = {name: how for name, how in results[commit].items() if how != SAME}
        print(commit, others or SAME, flush=True)
    write_json(options.json, __file__, argv, results)


if __name__ == "__main__":
    if sys.argv[1:] == ["--digests"]:  # with a package of which `_common` knows nothing
        print(json.dumps(digests()))
    else:
        main()
