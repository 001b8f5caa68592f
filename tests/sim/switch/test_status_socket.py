"""A switch's status socket when descriptors run out."""

import json
import os
import resource
import socket
import time
from pathlib import Path

from sim.switch.ports.status import StatusSocket

DEADLINE_S = 60.0


def asked(client: socket.socket) -> object:
    client.settimeout(DEADLINE_S)
    return json.loads(client.makefile().readline())


def test_a_time_without_free_descriptors_does_not_end_the_status_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "status")
    with StatusSocket(Path(path), lambda: {"ports": 2}), socket.socket(socket.AF_UNIX) as client:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
        try:
            client.connect(path)
            time.sleep(0.3)  # The switch meets the limit.
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert asked(client) == {"ports": 2}
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(path)
            assert asked(other) == {"ports": 2}
