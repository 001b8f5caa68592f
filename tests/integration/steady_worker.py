"""A worker that adds numbers all ranks can predict, round after round, until rank 0 is stopped.

``steady_worker.py JOB RANK SIZE ELEMENTS TIMEOUT_S``

It prints a line of JSON for everything that happens to it. When the job is restarted, it goes on with the earliest round that
some worker has not finished. A wrong sum ends it with status 3.
"""

import json
import os
import sys
import threading
from typing import Any

import numpy as np

from host_agent.communicator import Communicator, compile_ahead
from host_agent.errors import ClosedCommunicatorError, NetsumError, PeerError
from host_agent.joining import Membership, join

RESTART_TIMEOUT_S = 120.0
WRONG = 3


RUN, DENSITY = 64, 0.1


def is_sparse(number: int) -> bool:
    """Whether blocks of zeros are left out in a round."""
    return number % 3 == 2


def numbers(rank: int, number: int, elements: int) -> np.ndarray[Any, Any]:
    """A rank's contribution to a round: integers, every other time as float32, which holds them and their sums exactly.

    In a sparse round most of them are zero, in runs of 64, which are others at every rank.
    """
    stream = np.random.default_rng([rank, number])
    drawn = stream.integers(-(2**15), 2**15, elements, dtype=np.int32)
    if is_sparse(number):
        drawn *= (stream.random(-(-elements // RUN)) < DENSITY).repeat(RUN)[:elements]
    drawn[0] = 0
    return drawn if number % 2 else drawn.astype(np.float32)


def emit(event: str, **more: object) -> None:
    """Print a line of JSON; in one piece, as the membership's thread says something too: `print` writes the newline by itself."""
    sys.stdout.write(json.dumps({"event": event, **more}) + "\n")
    sys.stdout.flush()


class SteadyWorker:
    def __init__(self, rank: int, size: int, elements: int, timeout_s: float) -> None:
        self.rank, self.size, self.elements, self.timeout_s = rank, size, elements, timeout_s
        self.round = 0
        self.stop_requested = False
        self.communicator: Communicator | None = None

    def listen(self) -> None:
        self.stop_requested = sys.stdin.readline() == "stop\n"

    def leave_to_deadline(self, rank: int, reason: str) -> None:
        emit("left", rank=rank, reason=reason)

    def give_up(self, reason: str) -> None:
        emit("over", reason=reason)
        if self.communicator is not None:
            self.communicator.close()

    def life(self, membership: Membership) -> None:
        """Take part for as long as the admission holds, or until it is stopped."""
        with membership.communicator(timeout_s=self.timeout_s) as communicator:
            self.communicator = communicator
            agreed = communicator.allreduce(np.array([self.round], np.int32), op="min")
            self.round = int(agreed[0])
            while True:
                mine = numbers(self.rank, self.round, self.elements)
                mine[0] = self.stop_requested
                total = communicator.allreduce(mine, sparse="always" if is_sparse(self.round) else "never")
                expected = np.sum(
                    [numbers(rank, self.round, self.elements) for rank in range(self.size)], axis=0
                )
                if not np.array_equal(total[1:], expected[1:]):
                    emit(
                        "wrong",
                        round=self.round,
                        lanes=np.flatnonzero(total[1:] != expected[1:])[:10].tolist(),
                    )
                    os._exit(WRONG)
                emit("round", round=self.round)
                self.round += 1
                if total[0]:
                    communicator.barrier()
                    return

    def run(self, job: str) -> int:
        compile_ahead()
        threading.Thread(target=self.listen, daemon=True).start()
        with join(job=job, rank=self.rank, world_size=self.size, timeout_s=RESTART_TIMEOUT_S) as membership:
            emit(
                "joined",
                job_id=membership.admission.job_id,
                token=membership.admission.token,
                bind=membership.bind,
            )
            # Collectives of the old admission cannot end: no need to wait for their deadline.
            membership.watch(
                self.leave_to_deadline, self.give_up, lambda admission, reason: self.give_up(reason)
            )
            while True:
                try:
                    self.life(membership)
                except (PeerError, ClosedCommunicatorError) as error:
                    emit("trouble", error=str(error), membership=membership.trouble)
                    if membership.left:
                        return 1
                    membership.restarted(RESTART_TIMEOUT_S)
                    emit("restarted")
                else:
                    emit("done", rounds=self.round)
                    return 0


def main() -> int:
    job, rank, size, elements, timeout_s = sys.argv[1:]
    try:
        return SteadyWorker(int(rank), int(size), int(elements), float(timeout_s)).run(job)
    except NetsumError as error:
        emit("failed", error=str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
