"""A switch's port counters, as a line of JSON on every connection to a unix socket."""

import contextlib
import json
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LOOK_S = 0.5
_SEND_TIMEOUT_S = 2.0
_STOP_TIMEOUT_S = 5.0

_LOG = logging.getLogger(__name__)


class StatusSocket(socketserver.UnixStreamServer):
    """Answers every connection with a line of JSON and closes it; a context manager.

    `path`: where the socket is; an earlier switch's file there is replaced. `report`: returns the counters. Raises
    OSError if the socket cannot be made there.
    """

    request_queue_size = 16

    def __init__(self, path: Path, report: Callable[[], Any]) -> None:
        path.unlink(missing_ok=True)
        super().__init__(str(path), socketserver.BaseRequestHandler)
        self._path, self._report = path, report
        self._thread = threading.Thread(
            target=self.serve_forever, args=(_LOOK_S,), name="status", daemon=True
        )
        self._thread.start()

    def __exit__(self, *fault: Any) -> None:
        self.shutdown()
        self._thread.join(_STOP_TIMEOUT_S)
        super().__exit__(*fault)
        self._path.unlink(missing_ok=True)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        try:
            return super().get_request()
        except OSError as fault:  # No descriptor is free, for instance: others may close some.
            _LOG.warning("the status socket cannot answer: %s", fault)
            time.sleep(_LOOK_S)
            raise

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection."""
        with contextlib.suppress(OSError):
            request.settimeout(_SEND_TIMEOUT_S)
            request.sendall(json.dumps(self._report()).encode() + b"\n")
