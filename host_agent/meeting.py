"""Meeting by the environment: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun and its like set them."""

import atexit
import contextlib
import os
import socket
import threading
import time
from datetime import timedelta
from typing import Final

from host_agent.errors import MisuseError
from host_agent.joining import JoinError
from host_agent.session import Share

VARIABLES: Final = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_RETRY_S: Final = 0.1
_LATECOMERS_S: Final = 10.0


def meet(timeout_s: float) -> tuple[Share, int, int]:
    """Read the variables; return how the ranks share a text, this rank, and the number of ranks.

    Without any of the variables there is one rank. Raises MisuseError if some are missing.
    """
    missing = [each for each in VARIABLES if not os.environ.get(each)]
    if missing == list(VARIABLES):
        return (lambda text: text), 0, 1
    numbers = [os.environ.get(each, "") for each in ("RANK", "WORLD_SIZE", "MASTER_PORT")]
    if missing or not all(each.isdecimal() for each in numbers) or int(numbers[0]) >= int(numbers[1]):
        wrong = ", ".join(missing) or ", ".join(f"{each}={os.environ[each]}" for each in VARIABLES)
        raise MisuseError(
            f"{wrong}: expected RANK below WORLD_SIZE, and MASTER_ADDR and MASTER_PORT of rank 0, in every rank's "
            "environment; torchrun and mpiexec need none of them to be set"
        )
    rank, size, port = map(int, numbers)
    address = os.environ["MASTER_ADDR"]
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return _store_of_torchrun(address, port, rank, timeout_s), rank, size
    if rank == 0:
        return (lambda text: _serve(address, port, text, size - 1, timeout_s)), rank, size
    return (lambda _: _ask(address, port, timeout_s)), rank, size


def _serve(address: str, port: int, text: str, readers: int, timeout_s: float) -> str:
    """Give the text to the other ranks, in a thread of its own: those that do not come are named when the job starts."""
    try:
        server = socket.create_server((address, port))
    except OSError as error:
        raise JoinError(
            f"rank 0 cannot listen at {address}:{port} ({error.strerror}): set MASTER_ADDR and MASTER_PORT to an address of "
            "rank 0's machine and a free port"
        ) from error
    server.settimeout(timeout_s)

    def run() -> None:
        with server, contextlib.suppress(OSError):
            for _ in range(readers):
                with server.accept()[0] as reader:
                    reader.sendall(text.encode() + b"\n")

    thread = threading.Thread(target=run, name="netsum-meeting", daemon=True)
    thread.start()
    atexit.register(thread.join, _LATECOMERS_S)  # If this rank fails, the others still hear why.
    return text


def _ask(address: str, port: int, timeout_s: float) -> str:
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((address, port), timeout=max(0.1, until - time.monotonic())) as server,
        ):
            line = server.makefile().readline()
            if line.endswith("\n"):
                return line
        time.sleep(_RETRY_S)
    raise JoinError(f"rank 0 did not come: nothing answered at {address}:{port} within {timeout_s:g} s")


_meetings = 0  # of this process: a second session must not read the text of the first in torchrun's store


def _store_of_torchrun(address: str, port: int, rank: int, timeout_s: float) -> Share:
    """Share through the store that torchrun has at this address."""
    from torch.distributed import TCPStore

    global _meetings
    _meetings += 1
    key = f"netsum/session/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}.{_meetings}"

    def share(text: str) -> str:
        store = TCPStore(address, port, is_master=False, timeout=timedelta(seconds=timeout_s))
        if rank == 0:
            store.set(key, text)
        return str(store.get(key).decode())

    return share
