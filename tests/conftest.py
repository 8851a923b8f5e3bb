import os

# No test opens a window, whatever the display.
os.environ["MPLBACKEND"] = "Agg"
