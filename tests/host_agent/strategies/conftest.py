"""Ranks of a Gloo group that last as long as the tests of strategies do."""

from collections.abc import Iterator

import pytest

from tests.integration.torch_ranks import Ranks


@pytest.fixture(scope="package")
def gloo_ranks() -> Iterator[Ranks]:
    """Four ranks."""
    with Ranks(4, backend="gloo") as ranks:
        yield ranks
