"""What all tests share."""

import os

from hypothesis import settings

# No test opens a window, whatever the display.
os.environ["MPLBACKEND"] = "Agg"

# The same examples in every run, which may take any time on a machine that is busy;
# --hypothesis-profile=default looks for others.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
