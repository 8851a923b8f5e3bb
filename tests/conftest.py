import os

import pytest
from hypothesis import settings

# No test opens a window, whatever the display.
os.environ["MPLBACKEND"] = "Agg"

# The same examples in every run; --hypothesis-profile=default looks for others.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")


# Fits whose start is the matter of the test.
FULL_START = {"test_partition", "test_quality"}


@pytest.fixture(autouse=True)
def quick_start(request, monkeypatch):
    """EM starts from a partition that is found quickly, in tests of all else."""
    from sk_mice import _partition

    if request.module.__name__.split(".")[-1] not in FULL_START:
        monkeypatch.setattr(_partition, "RESTARTS", 4)
        monkeypatch.setattr(_partition, "PROPOSALS", 2)
