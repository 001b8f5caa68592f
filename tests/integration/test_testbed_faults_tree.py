"""The faults of test_testbed_faults.py on a tree of switches: a file of its own, so that both can run at once."""

from collections.abc import Iterator

import pytest

from tests.integration.test_testbed_faults import (
    pytestmark,
    running_job,
    test_a_dead_worker_is_named_by_all_others,
    test_faults_at_random_moments,
    test_the_job_goes_on,
)
from tests.integration.testbed_faults import Bed, running

__all__ = [
    "pytestmark",
    "running_job",
    "test_a_dead_worker_is_named_by_all_others",
    "test_faults_at_random_moments",
    "test_the_job_goes_on",
]


@pytest.fixture(scope="module", name="bed")
def running_testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with running("embedded", "leaf-spine-4", tmp_path_factory.mktemp("faults")) as bed:
        yield bed
