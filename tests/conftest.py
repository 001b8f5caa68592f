"""What holds for all tests: those of random data draw the same each time, and take the time they take; which come last."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# The first call of a compiled function loads or compiles it, and the machine may be running everything else as well: no
# deadlines. A landing must not depend on luck, so only NETSUM_LONG_TESTS=1 draws anew each time.
settings.register_profile(
    "netsum",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="NETSUM_LONG_TESTS" not in os.environ,
)
settings.load_profile("netsum")

# A shell starts what runs in its background with SIGINT ignored, which what tests start would inherit: Ctrl-C would not end it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SHORT = {"test_communicator.py", "test_failures.py", "test_recovery_time.py", "test_terrible_network.py"}
"""Files of tests/integration that take seconds where others take minutes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put these last: the processes that share the work file by file then end together."""
    items.sort(key=lambda item: item.path.name in SHORT)
