import os

import pytest
from hypothesis import settings

# No test opens a window, whatever the display.
os.environ["MPLBACKEND"] = "Agg"

# The same examples in every run; --hypothesis-profile=default looks for others.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture
def quick_start(monkeypatch):
    """EM starts from a partition that is found quickly, for tests of all else."""
    from sk_mice import _partition

    monkeypatch.setattr(_partition, "RESTARTS", 4)
    monkeypatch.setattr(_partition, "PROPOSALS", 2)
