"""A parameter server over the group's point-to-point messages, and its workers' requests.

Rank 0 is the server. It has a thread for each worker, so that a worker that fails ends its own thread: the others go on.
"""

import warnings
from enum import IntEnum
from typing import Annotated, Any

import torch
from torch import Tensor

from host_agent.errors import MisuseError, PeerError
from host_agent.strategies.base import Strategy

SERVER = 0
_HEADER, _PAYLOAD = 1, 2  # Tags.
_SERVE_THERE = f"rank {SERVER} is the parameter server: call serve() there"


class ServerRequest(IntEnum):
    """Kinds of a worker's request."""

    PUSH = 1  # A gradient follows.
    PULL = 2  # Send the parameters.
    ELASTIC = 3  # The worker's parameters follow; send the center.
    END = 4  # The worker has taken its last step.


class ServedStrategy(Strategy):
    """A strategy in which rank 0 keeps the parameters and the other ranks train.

    The loop differs at the server::

        with netsum.strategy("downpour", model, optimizer) as s:
            if s.serves:
                s.serve()
            else:
                for inputs, targets in batches:
                    with s.step():
                        loss_function(model(inputs), targets).backward()

    Workers may take different numbers of steps. A worker that fails is named in `lost`, and in a warning, at the server, which
    goes on with the others. When the server fails, the workers' next message does.

    `patience_s`: how long the server waits for the others on behalf of one that is ahead, and a worker for the server's
    thread.
    """

    COMPRESSES = False

    def __init__(
        self, model: Any, optimizer: Any, *, patience_s: Annotated[float, "[0, ∞)"] = 600.0, **common: Any
    ) -> None:
        super().__init__(model, optimizer, **common)
        self.require(self.workers > 1, "expected a server and at least one worker, not one process")
        self.patience_s = patience_s
        self.serves = self.rank == SERVER  # Whether this is the server.
        # At the server, updates of the parameters; at a worker, the version that it pulled last.
        self.version = 0
        # At the server: for each push, how many updates came between the pull of its parameters and it.
        self.staleness: list[int] = []
        self.lost: dict[int, str] = {}  # At the server: workers that failed, and how.
        self._clocks = dict.fromkeys(range(1, self.workers), 0)
        self._changed = self.exchange.threads.Condition()
        self._served = False

    # The server

    def serve(self) -> None:
        """Serve the workers until each has ended; at rank 0.

        Raises MisuseError: this is not rank 0. Raises PeerError: all workers failed.
        """
        self.require(self.serves, f"rank {self.rank} is a worker; rank {SERVER} serves")
        make = self.exchange.threads.Thread
        threads = [make(target=self._serve, args=(each,), daemon=True) for each in self._clocks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._served = True
        if len(self.lost) == self.workers - 1:
            raise PeerError(f"strategy {self.name}: all workers failed: {self.lost}")
        final = self.vector()
        for worker in range(1, self.workers):
            if worker not in self.lost:
                self.exchange.send(final, worker, _PAYLOAD)

    def apply(self, gradient: Tensor) -> None:
        """Take a step of the server's optimizer with a worker's gradient."""
        self.load_gradient(gradient)
        self.optimizer.step()

    def pull_is_due(self, clock: int) -> bool:
        """Return whether a worker that has taken this many steps may have the parameters now."""
        return True

    def _serve(self, worker: int) -> None:
        try:
            while self._answer(worker):
                pass
        except Exception as fault:
            self.lost[worker] = str(fault)
            warnings.warn(
                f"strategy {self.name}: rank {worker} failed, the others go on: {fault}", stacklevel=1
            )
        with self._changed:
            self._clocks.pop(worker)
            self._changed.notify_all()

    def _answer(self, worker: int) -> bool:
        """Process one message; return whether another will follow."""
        header = self.exchange.receive(torch.zeros(3, dtype=torch.int64), worker, _HEADER)
        request, version, clock = header.tolist()
        if request == ServerRequest.END:
            return False
        payload = None
        if request != ServerRequest.PULL:
            payload = self.exchange.receive(torch.empty_like(self.vector()), worker, _PAYLOAD)
        with self._changed:
            if self._clocks[worker] != clock:
                self._clocks[worker] = clock
                self._changed.notify_all()
            if request == ServerRequest.PUSH:
                self.staleness.append(self.version - version)
                self.version += 1
                self.apply(payload)
                return True
            if not self._changed.wait_for(lambda: self.pull_is_due(clock), self.patience_s):
                behind = [each for each, steps in self._clocks.items() if steps == min(self._clocks.values())]
                raise PeerError(
                    f"rank {worker} at step {clock} waited {self.patience_s:g} s for ranks {behind} at step "
                    f"{min(self._clocks.values())}"
                )
            reply, version = self.vector(), self.version
            if payload is not None:
                self.version += 1
                self.take_in(payload)
        self.exchange.send(torch.tensor([version]), worker, _HEADER)
        self.exchange.send(reply, worker, _PAYLOAD)
        return True

    def take_in(self, parameters: Tensor) -> None:
        """Move the server's parameters by a worker's."""
        raise MisuseError(f"strategy {self.name} takes no parameters of workers")

    # A worker

    def push(self, gradient: Tensor) -> None:
        """Send a gradient."""
        self._send_request(ServerRequest.PUSH)
        self.exchange.send(gradient, SERVER, _PAYLOAD)

    def pull(self) -> None:
        """Load the server's parameters."""
        self._send_request(ServerRequest.PULL)
        self.load(self._reply())

    def swap(self, parameters: Tensor) -> Tensor:
        """Send this worker's parameters, and return the server's."""
        self._send_request(ServerRequest.ELASTIC)
        self.exchange.send(parameters, SERVER, _PAYLOAD)
        return self._reply()

    def before_step(self) -> None:
        """Check that this is a worker."""
        self.require(not self.serves, _SERVE_THERE)

    def at_end(self) -> None:
        """Report that this worker has ended, and load the server's last parameters when all have."""
        if self.serves:
            self.require(self._served, _SERVE_THERE)
            return
        self._send_request(ServerRequest.END)
        self.load(self.exchange.receive(torch.empty_like(self.vector()), SERVER, _PAYLOAD))

    def _send_request(self, request: ServerRequest) -> None:
        self.exchange.send(torch.tensor([int(request), self.version, self.steps]), SERVER, _HEADER)

    def _reply(self) -> Tensor:
        self.version = int(self.exchange.receive(torch.zeros(1, dtype=torch.int64), SERVER, _HEADER))
        return self.exchange.receive(torch.empty_like(self.vector()), SERVER, _PAYLOAD)
