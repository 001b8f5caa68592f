"""Nothing is compiled while the other workers wait: a communicator has loaded all that its collectives run."""

import subprocess
import sys

SCRIPT = """
import threading
import numpy as np
from numba.core import event
from host_agent.communicator import Communicator
from tests.integration.simulated.loopback import LoopbackSwitch


class Compilations(event.Listener):
    def __init__(self):
        self.names = []

    def on_start(self, started):
        self.names.append(started.data["dispatcher"].py_func.__qualname__)

    def on_end(self, ended):
        pass


def collectives(worker):
    for dtype in (np.float32, np.int32, np.int64, np.float64):
        for sparse in ("never", "always"):
            for op in ("sum", "max"):
                if sparse == "never" or op == "sum":
                    worker.allreduce(np.arange(1000, dtype=dtype), op=op, sparse=sparse)
    worker.barrier()


with LoopbackSwitch(64, 2) as switch:
    workers = [Communicator(admission, bind=address, timeout_s=400.0) for admission, address in switch.start_job()]
    seen = Compilations()
    event.register("numba:compile", seen)
    threads = [threading.Thread(target=collectives, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for worker in workers:
        worker.close()
print("compiled:", *seen.names)
"""


def test_a_communicator_has_loaded_what_its_collectives_run() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "compiled:\n"
