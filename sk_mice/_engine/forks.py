"""What begins anew in the child of a fork."""

import os


def in_each_child(begin) -> None:
    """Call a function in the child of each fork, which has no thread of the parent."""
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=begin)
