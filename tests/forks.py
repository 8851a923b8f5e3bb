"""Tests whose work is done by a forked process."""

import multiprocessing
import os

import pytest


# Later Pythons warn of threads, of which the children here make no use.
def forks(test):
    """Mark a test that needs forks."""
    test = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")(test)
    return pytest.mark.skipif(
        not hasattr(os, "fork"), reason="this system has no fork"
    )(test)


def child(work):
    """A process that does some work and ends."""
    process = multiprocessing.get_context("fork").Process(target=work, daemon=True)
    process.start()
    return process
