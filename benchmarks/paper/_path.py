"""Makes the benchmarks' common module importable, from whatever folder they are run."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
