"""Four workers add NumPy arrays on an embedded switch on loopback: every step from the switch to the sum, no root.

In a real job each worker is a process on its own host, and gets its admission from the controller as JSON.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from controller import SwitchController, WorkerEndpoint
from host_agent import Admission, Communicator
from netsum.programs import compiled_program
from topologies.hosts import Host
from topologies.loopback import LoopbackTestbed

WORKERS = 4


def work(host: Host, admission: Admission) -> None:
    """Be one worker."""
    gradients = np.full(100_000, 0.5 + admission.worker_id, np.float32)
    with Communicator(admission, bind=(host.ip, host.udp_port), timeout_s=10.0) as comm:
        mean = comm.allreduce(gradients, op="mean")
        futures = [comm.allreduce_async(gradients * step) for step in range(3)]  # several in flight
        totals = [float(future.result()[0]) for future in futures]
        print(f"worker {comm.worker_id}: mean {mean[0]}, totals {totals}, {comm.total_stats.chunks} chunks")


def main() -> None:
    """Bring up a switch, make a job of four workers, let them add, take all down."""
    program = compiled_program(256)
    with (
        TemporaryDirectory() as logs,
        LoopbackTestbed(WORKERS, udp_port=28275, folder=Path(logs)) as testbed,
        SwitchController.connect(
            testbed.p4runtime_address, program=program.json, p4info=program.p4info
        ) as controller,
        ThreadPoolExecutor(WORKERS) as pool,
    ):
        controller.set_pipeline()
        controller.set_switch_address(testbed.switch_ip, testbed.switch_mac)
        endpoints = [
            WorkerEndpoint(
                port=host.port, ip=host.ip, mac=host.mac, udp_port=host.udp_port, switch=host.switch
            )
            for host in testbed.hosts
        ]
        job = controller.create_job("example", endpoints, slots=64)
        list(pool.map(work, testbed.hosts, job.admissions))
        print("the switch counted", controller.counters(job))
        controller.end_job(job)


if __name__ == "__main__":
    main()
