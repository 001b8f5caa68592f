"""Ranks of torch jobs that last as long as the tests do."""

from collections.abc import Iterator

import pytest

from tests.integration.torch_ranks import Ranks, local_service

LOSS = ("--drop-ppm", "10000")
"""One packet in a hundred, each way."""


@pytest.fixture(scope="session")
def torch_service() -> Iterator[str]:
    """The service that NETSUM_CONTROLLER names: a switch of four places."""
    with local_service() as (address, _):
        yield address


@pytest.fixture(scope="session")
def ranks(torch_service: str) -> Iterator[Ranks]:
    """Three ranks."""
    with Ranks(3, {"NETSUM_CONTROLLER": torch_service}) as ranks:
        yield ranks


@pytest.fixture(scope="session")
def ranks_with_256_lanes() -> Iterator[Ranks]:
    """Three ranks whose packets are those of a network."""
    with local_service("--lanes", "256") as (address, _), Ranks(3, {"NETSUM_CONTROLLER": address}) as ranks:
        yield ranks


@pytest.fixture(scope="session")
def ranks_with_loss() -> Iterator[Ranks]:
    """Three ranks on a switch that loses one packet in a hundred each way."""
    with local_service(*LOSS) as (address, _), Ranks(3, {"NETSUM_CONTROLLER": address}) as ranks:
        yield ranks
