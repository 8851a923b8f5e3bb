"""``python -m sk_mice`` is the command ``sk-mice``."""

import sys

from .cli import main

sys.exit(main())
