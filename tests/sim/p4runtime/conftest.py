from collections.abc import Iterator

import pytest

from tests.sim.p4runtime.p4runtime_client import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A switch with entities.p4 and a primary client."""
    made = Bench()
    yield made
    made.close()


@pytest.fixture
def bare() -> Iterator[Bench]:
    """A switch without a program, and a primary client."""
    made = Bench(set_config=False)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Bench]:
    """A switch with entities.p4 for all tests of a module, which leave it as it was."""
    made = Bench()
    yield made
    made.close()
