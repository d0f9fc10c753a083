"""Collections of garbage do not walk through what lives as long as the run: they would stop every thread for it."""

import gc

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Take what is there before the first test out of what is searched for garbage."""
    gc.collect()
    gc.freeze()
