"""A switch's port counters, as a line of JSON on every connection to a unix socket."""

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_LOOK_S = 0.5
_SEND_TIMEOUT_S = 2.0
_STOP_TIMEOUT_S = 5.0

_LOG = logging.getLogger(__name__)


class StatusSocket:
    """Answers every connection with a line of JSON and closes it; a context manager.

    `path`: where the socket is; an earlier switch's file there is replaced. `report`: returns the counters. Raises
    OSError if the socket cannot be made there.
    """

    def __init__(self, path: Path, report: Callable[[], Any]) -> None:
        self._path = path
        self._report = report
        self._stopping = False
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(str(path))
            self._listener.listen(16)
        except OSError:
            self._listener.close()
            raise
        self._listener.settimeout(_LOOK_S)
        self._thread = threading.Thread(target=self._run, name="status", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        self._thread.join(_STOP_TIMEOUT_S)
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _run(self) -> None:
        while not self._stopping:
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError as fault:  # No descriptor is free, for instance: others may close some.
                _LOG.warning("the status socket cannot answer: %s", fault)
                time.sleep(_LOOK_S)
                continue
            with client, contextlib.suppress(OSError):
                client.settimeout(_SEND_TIMEOUT_S)
                client.sendall(json.dumps(self._report()).encode() + b"\n")
