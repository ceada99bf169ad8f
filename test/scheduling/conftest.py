"""The engine on virtual time."""

import pytest
from virtual_drive import drive, make_task, make_work


@pytest.fixture
def harness():
    class Harness:
        task = staticmethod(make_task)
        work = staticmethod(make_work)
        drive = staticmethod(drive)

    return Harness
