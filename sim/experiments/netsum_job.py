"""A job of netsum in a scenario: real workers on real arrays, whose sums are checked.

The workers share an array for the results of each all-reduce: every block is compared when a worker has written it, and then
erased (`sim.network.engine.outputs`). Contributions are windows of one array. A thousand workers so need little more
memory than one, apart from their state.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from controller.errors import JobRefusedError
from host_agent.collectives import AllReduceRequest, BroadcastRequest, Collective
from host_agent.collectives.scatter_gather import gather_pass
from host_agent.collectives.sparse import AUTO_LEAST_BYTES
from host_agent.schedule import Outcome
from host_agent.wire import Admission, fingerprint
from sim.errors import SettingError, SimulationError
from sim.experiments.experiment import Point
from sim.experiments.scenario import Scenario, added_bytes, computed_lanes, host_cost
from sim.experiments.settings import JobTable
from sim.experiments.values import ExpectedSum, contributions
from sim.experiments.work import Bucket, Work, late_ns, slowness
from sim.network.graph import Node
from sim.network.outputs import Output
from sim.network.parameters import HostCost
from sim.network.trees import places
from sim.network.worker import Worker

_FLOAT_BYTES = 4
_AT_ONCE = 16


class WrongSumError(SimulationError):
    """A sum differs from the expected one in some bit."""


class NetsumJob:
    """The workers of a job, each of which begins its next iteration when it has ended the one before.

    `admitted`: its present epoch on its switches.
    """

    def __init__(
        self,
        point: Point,
        number: int,
        scenario: Scenario,
        work: Work,
        job: JobTable | None = None,
        hosts: Sequence[Node] = (),
    ) -> None:
        job = job or point.settings.job[number]
        self.settings = job
        self.groups = [self]  # The parts of the job that use a switch.
        self._point, self._number, self._work = point, number, work
        self._network = scenario.network
        self._check = point.settings.run.check
        self.lanes = computed_lanes(job)
        self._elements = [self._elements_of(bucket) for bucket in work.buckets]
        shape = (work.iterations, len(work.buckets), job.workers)
        # started_ns, ended_ns: int64 arrays (iterations, buckets, workers). When each all-reduce was submitted and when it
        # was done; −1: not at all.
        self.started_ns = np.full(shape, -1, np.int64)
        self.ended_ns = np.full(shape, -1, np.int64)
        # int64 array (iterations + 1, workers). When each worker began each iteration; the last row is when it ended the
        # last.
        self.iteration_ns = np.full((work.iterations + 1, job.workers), -1, np.int64)
        self.errors: list[str] = []
        self.checked = 0
        self._inputs: dict[tuple[int, int], list[npt.NDArray[Any]]] = {}
        self._unchecked: dict[int, npt.NDArray[Any]] = {}
        self._outputs: dict[tuple[int, int], Output] = {}
        self._to_check: dict[tuple[int, int], int] = {}
        self._at_root: dict[tuple[int, int], npt.NDArray[Any]] = {}  # The root's array of each broadcast.
        self._zero: dict[tuple[int, int], npt.NDArray[np.bool_] | None] = {}
        self._next = [0] * job.workers
        self._submitted = [0] * job.workers
        self._scenario = scenario
        self._hosts = hosts = hosts or scenario.hosts_of(job)
        self._place = self._network.free_place(hosts)
        adds = None if job.tree else scenario.adds(job)
        self._placed = places(self._network, hosts, adds, self._place)
        assert scenario.controller is not None
        try:
            self.admitted = scenario.controller.create_job(
                job.name, self._placed, job.slots, quorum=job.quorum
            )
        except JobRefusedError as refusal:
            raise SettingError(f"job {job.name}: {refusal}") from None
        self.retired: list[Worker] = []  # Workers of epochs that have ended.
        self.workers = self._add_workers()
        for worker in range(job.workers):
            self._network.pending.add((job.name, worker))
            start_ns = job.start + late_ns(job, point.seed, worker, 0)
            self._network.at(start_ns, scenario.controlling.request, self._begin, worker, 0)

    def _add_workers(self) -> list[Worker]:
        """Add the workers of the job's epoch."""
        job, scenario = self.settings, self._scenario
        cost, hosts = host_cost(self._point), self._hosts
        switches = [scenario.network.by_name[each.switch] for each in self._placed]
        workers = self._network.add_job(
            self.admitted.admissions,
            hosts,
            switches,
            lambda worker: [],
            name=job.name,
            timeout_ns=job.timeout,
            at_once=_AT_ONCE,
            cost=lambda worker: HostCost(cost.send_ns, cost.receive_ns, cost.byte_ns, slowness(job, worker)),
            place=self._place,
            added_bytes=added_bytes(job),
            on_ended=self._on_ended,
            checked=self._check,
            keep_outcomes=False,
        )
        if self._network.forward is not None:
            parts = {scenario.network.by_name[name]: part for name, part in self.admitted.parts.items()}
            self._network.forward.add_job(workers, zip(hosts, switches, strict=True), parts, self._repeats)
        return workers

    def _elements_of(self, bucket: Bucket) -> int:
        """Return the elements of an array; where fewer lanes are computed, it has fewer, for as many packets."""
        job = self.settings
        elements = -(-bucket.size // _FLOAT_BYTES) * self.lanes // job.lanes or 1
        return elements if bucket.kind != "all-gather" else -(-elements // job.workers) * job.workers

    @property
    def _repeats(self) -> bool:
        """Whether all blocks travel alike: then the job may be fast-forwarded."""
        return not self.settings.quorum and all(bucket.density == 1 for bucket in self._work.buckets)

    def interrupt(self) -> None:
        """End the epoch of the job: its switch has restarted."""
        for worker in self.workers:
            worker.alive = False

    def restart(self) -> None:
        """Continue in a new epoch, from the first all-reduce that not all workers have ended."""
        assert self._scenario.controller is not None
        self.admitted = self._scenario.controller.restart_job(self.admitted)
        self.retired += self.workers
        self.workers = self._add_workers()
        buckets = len(self._work.buckets)
        for output in self._outputs.values():
            output.restart()
        first = min((each for each in self._next if each >= 0), default=0)
        for worker, each in enumerate(self._next):
            if each < 0:  # The worker was killed, or has failed.
                self.workers[worker].alive = False
                continue
            if self.iteration_ns[-1, worker] >= 0 and first < each:
                self.iteration_ns[-1, worker] = -1
                self._network.pending.add((self.settings.name, worker))
            self._next[worker] = first
            again = self._submitted[worker]
            self._submitted[worker] = first
            for collective in range(first, again):
                self._submit(worker, *divmod(collective, buckets))

    def _begin(self, worker: int, iteration: int) -> None:
        """Let a worker begin an iteration: its buckets become ready one after the other."""
        if self.iteration_ns[iteration, worker] >= 0:  # Before the switch restarted.
            return
        now_ns = self._network.now_ns
        self.iteration_ns[iteration, worker] = now_ns
        for bucket, each in enumerate(self._work.buckets):
            ready_ns = now_ns + round(
                (self._work.forward_ns + each.ready_ns) * slowness(self.settings, worker)
            )
            if ready_ns == now_ns:
                self._submit(worker, iteration, bucket)
            else:
                self._network.at(ready_ns, self._submit, worker, iteration, bucket)

    def _submit(self, worker: int, iteration: int, bucket: int) -> None:
        if self.started_ns[iteration, bucket, worker] < 0:
            self.started_ns[iteration, bucket, worker] = self._network.now_ns
        self._submitted[worker] += 1
        if self.workers[worker].core.failed:
            return
        self.workers[worker].submit(partial(self._plan, worker, iteration, bucket))

    def _plan(
        self, worker: int, iteration: int, bucket: int, admission: Admission, sequence: int
    ) -> Collective[Any]:
        values, out = self._values(iteration, bucket), self._output(iteration, bucket)
        kind, root = self._work.buckets[bucket].kind, self._work.buckets[bucket].root
        if kind == "all-gather":  # All workers contribute windows of one array.
            source, target = values[0].view(np.uint32), out.view(np.uint32)
            only = gather_pass(admission, fingerprint(sequence=sequence), source, target)
            return Collective(f"all-gather number {sequence}", out.size, iter((only,)), lambda counted: out)
        if kind == "broadcast":
            if admission.rank == root:  # The root may receive headers alone, and has an array of its own.
                out = np.zeros_like(out)
                self._at_root[iteration, bucket] = out
            return BroadcastRequest(values[root], root, out).plan(admission, sequence)
        sparse: Any = self.settings.sparse
        only_root = root if kind == "reduce" else None
        request = AllReduceRequest(values[worker], out=out, sparse=sparse, root=only_root)
        return request.plan(admission, sequence)

    def _on_ended(self, ended: Worker, outcome: Outcome) -> None:
        worker = ended.admission.rank
        buckets = len(self._work.buckets)
        iteration, bucket = divmod(self._next[worker], buckets)
        self._next[worker] += 1
        if outcome.error is not None:
            if not self.errors or str(outcome.error) not in self.errors:
                self.errors.append(str(outcome.error))
            if ended.core.failed:
                self.give_up(worker)
            return
        now_ns = max(int(ended.record["busy_ps"]), self._network.now_ps) // 1000
        if self._check:
            again = self.ended_ns[iteration, bucket, worker] >= 0
            self._check_output(iteration, bucket, worker, again=bool(again))
        self.ended_ns[iteration, bucket, worker] = now_ns
        if bucket + 1 < buckets:
            return
        computing_ns = round(self._work.computing_ns * slowness(self.settings, worker))
        computed_ns = int(self.iteration_ns[iteration, worker]) + computing_ns
        ended_ns = max(now_ns, computed_ns)
        following = iteration + 1
        if following == self._work.iterations:
            self.iteration_ns[following, worker] = ended_ns
            self._network.pending.discard((self.settings.name, worker))
            return
        begin_ns = ended_ns + late_ns(self.settings, self._point.seed, worker, following)
        if begin_ns <= now_ns:
            self._begin(worker, following)
        else:
            self._network.at(begin_ns, self._begin, worker, following)

    def give_up(self, worker: int) -> None:
        """No longer wait for a worker that was killed or has failed."""
        self._next[worker] = -(1 << 40)
        self._network.pending.discard((self.settings.name, worker))

    def _values(self, iteration: int, bucket: int) -> list[npt.NDArray[Any]]:
        key = (iteration, bucket) if self._check else (0, bucket)
        if key not in self._inputs:
            collective = key[0] * len(self._work.buckets) + bucket
            self._inputs[key] = contributions(
                (self._point.seed, self._number, collective),
                self.settings.workers,
                self._elements[bucket],
                self._work.buckets[bucket].density,
                self.lanes,
                common=self._work.buckets[bucket].common,
            )
        return self._inputs[key]

    def _output(self, iteration: int, bucket: int) -> npt.NDArray[Any]:
        """Return the array that all workers write the result of an all-reduce to."""
        if not self._check:
            if bucket not in self._unchecked:
                self._unchecked[bucket] = np.empty(self._elements[bucket], np.float32)
            return self._unchecked[bucket]
        key = iteration, bucket
        if key not in self._outputs:
            kind, root = self._work.buckets[bucket].kind, self._work.buckets[bucket].root
            outputs, workers = self._network.outputs, self.settings.workers
            if kind in ("broadcast", "all-gather"):
                self._outputs[key] = outputs.add(self._inputs[key][max(root, 0)], workers)
            else:
                expected = ExpectedSum(self._inputs[key], self.lanes)
                self._outputs[key] = outputs.add(expected.values, workers, expected.compute)
            self._to_check[key] = self.settings.workers
            self._zero[key] = self._zero_blocks(self._inputs[key], self._work.buckets[bucket].density)
        return self._outputs[key].array

    def _zero_blocks(self, parts: list[npt.NDArray[Any]], density: float) -> npt.NDArray[np.bool_] | None:
        """Return which blocks of an all-reduce are zero at all workers, and so need not travel; None if all travel."""
        if density == 1 or not self._is_sparse(parts):
            return None
        zero = np.ones(parts[0].size, np.bool_)
        for part in parts:
            zero &= part == 0
        return np.logical_and.reduceat(zero, range(0, zero.size, self.lanes))

    def _is_sparse(self, parts: list[npt.NDArray[Any]]) -> bool:
        chosen = self.settings.sparse
        return chosen == "always" or (chosen == "auto" and parts[0].nbytes >= AUTO_LEAST_BYTES)

    def _check_output(self, iteration: int, bucket: int, worker: int, *, again: bool) -> None:
        """Raise an error unless a worker has written every block of an all-reduce once, and right."""
        key = iteration, bucket
        output = self._outputs[key]
        what = f"job {self.settings.name}: all-reduce {iteration}.{bucket}"
        if output.wrong is not None:
            rank, element = output.wrong
            raise WrongSumError(f"{what} of worker {rank}: element {element} is not the sum")
        zero, blocks = self._zero[key], -(-self._elements[bucket] // self.lanes)
        # Blocks of zeros travel all the same behind a part without any.
        least = blocks if zero is None else blocks - int(zero.sum())
        kind, root = self._work.buckets[bucket].kind, self._work.buckets[bucket].root
        if kind == "all-gather":  # Blocks that are its own alone come back without lanes.
            first, end = gather_pass(
                self.workers[worker].admission, 0, output.array, output.array
            ).header_only
            least = blocks = blocks - (end - first)
        elif kind == "reduce" and worker != root:
            least = blocks = 0
        if kind == "broadcast" and worker == root:
            if self._at_root.pop(key).tobytes() != output.expected.tobytes():
                raise WrongSumError(f"{what} of worker {worker}: the root's array is not what it sent")
        elif not least <= output.blocks(worker) <= blocks:
            raise WrongSumError(
                f"{what} of worker {worker}: {output.blocks(worker):,} of {least:,} blocks were written"
            )
        if again:
            return
        self.checked += 1
        self._to_check[key] -= 1
        if self._to_check[key] == 0:
            left_out = None if zero is None else zero.repeat(self.lanes)[: self._elements[bucket]]
            if (element_written := output.stray(left_out)) is not None:
                raise WrongSumError(f"{what}: element {element_written} was written without a RESULT")
            self._network.outputs.remove(output)
            del self._inputs[key], self._outputs[key], self._zero[key]
