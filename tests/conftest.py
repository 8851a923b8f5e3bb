"""What all tests share."""

import os
import signal
import sys

import pytest
import torch
from hypothesis import HealthCheck, settings

from sk_mice._engine import ambient

# No test opens a window, whatever the display.
os.environ["MPLBACKEND"] = "Agg"

# Scripts start what they put into the background with Ctrl-C ignored.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, which may take any time on a machine that is busy;
# --hypothesis-profile=default looks for others.
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def closed_figures():
    """Figures stay open until they are closed, and matplotlib warns of many."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def two_threads():
    """Of torch, during a test, also on a machine with one core."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ambient, "cpu_count", lambda: 2)
        yield
    torch.set_num_threads(before)
