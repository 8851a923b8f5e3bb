"""
Going on with a killed fit
==========================

A long fit may be killed: by a time limit, by a machine that is turned off, or by
somebody who needs the memory. With a folder as ``checkpoint``, the same call goes on
from the last checkpoint, and ends with the same result, bit for bit.
"""

# %%
# Another process begins the fit. It is killed as soon as its first checkpoint is there,
# and has no chance to tidy up.

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from sk_mice import MiCEClustering
from sk_mice.datasets import load_digits
from sk_mice.inspection import TrainingDisplay

X, y, _ = load_digits()
X = X[y < 5]
checkpoints = Path(tempfile.mkdtemp())
settings = {
    "max_epochs": 30,
    "batch_size": 64,
    "random_state": 0,
    "checkpoint": str(checkpoints),
}
script = f"""
from sk_mice import MiCEClustering
from sk_mice.datasets import load_digits

X, y, _ = load_digits()
MiCEClustering(5, **{settings}).fit(X[y < 5])
"""
process = subprocess.Popen([sys.executable, "-c", script])
while process.poll() is None and not list(checkpoints.glob("*.safetensors")):
    time.sleep(0.1)
process.kill()
print(process.wait(), [path.name for path in checkpoints.glob("*.safetensors")])

# %%
# The same parameters and data find the checkpoint: its name is a hash of them. With
# ``verbose=1``, which is not in the hash, the fit says from where it goes on.

resumed = MiCEClustering(5, verbose=1, **settings).fit(X)

# %%
# A fit that was never stopped has the same posterior, in every bit.

whole = MiCEClustering(5, **(settings | {"checkpoint": None})).fit(X)
print(np.array_equal(resumed.predict_proba(X), whole.predict_proba(X)))

# %%
# The history has all epochs, also those of the process that was killed.

display = TrainingDisplay.from_estimator(resumed)

folder = Path(globals().get("__file__", "")).parent  # a notebook has no file
path = folder / "output" / "resume.png"
path.parent.mkdir(exist_ok=True)
display.figure_.savefig(path, dpi=150)
print(f"The picture is in {path}")
