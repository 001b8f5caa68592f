"""An experiment: MPI_Allreduce over MPI_COMM_WORLD of programs that know nothing of netsum.

``python -m netsum.mpi.preload --build`` compiles preload.c, which calls this module from a Python inside the program.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path

import numpy as np

from host_agent.errors import NetsumError
from netsum.mpi import MPI, Comm, dtlib, wrap


def build(target: Path) -> None:
    """Compile the library for this Python and the MPI whose mpicc is beside it or on PATH."""
    compiler = shutil.which("mpicc", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if compiler is None:
        sys.exit("netsum.mpi.preload needs mpicc: install the development files of MPI, or pip install mpich")
    library = sysconfig.get_config_var("LIBDIR")
    command = [compiler, "-O2", "-shared", "-fPIC", f'-DPYTHON="{sys.executable}"', "-o", str(target)]
    command += [f"-I{sysconfig.get_path('include')}", str(Path(__file__).with_suffix(".c")), f"-L{library}"]
    command += [f"-Wl,-rpath,{library}", f"-lpython{sysconfig.get_config_var('LDVERSION')}"]
    sys.exit(subprocess.run(command, check=False).returncode)


@cache
def _world() -> Comm:
    os.environ.pop("LD_PRELOAD", None)  # The switch that rank 0 starts is no MPI program.
    return wrap(MPI.COMM_WORLD)


def allreduce(send: int, received: int, count: int, datatype: int, op: int) -> bool:
    """Reduce what is at two addresses, of which the first is 0 for in place; return False if MPI must do it.

    `datatype`, `op`: the numbers that Fortran has for them. An error ends the job.
    """
    kind = MPI.Datatype.f2py(datatype)
    if not count or not kind.is_predefined or kind.extent != kind.size:  # A pair of MINLOC has a gap.
        return False
    given, taken = (
        [np.frombuffer(MPI.buffer.fromaddress(each, count * kind.size), dtlib.to_numpy_dtype(kind)), kind]
        for each in (send or received, received)
    )
    try:
        _world().Allreduce(given if send else MPI.IN_PLACE, taken, MPI.Op.f2py(op))
    except NetsumError as error:
        print(f"netsum.mpi.preload: {error}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)
    return True


def close() -> None:
    """Leave the job; rank 0 says where how many calls went."""
    if _world().rank == 0:
        counts = (f"{name} through {where}: {count}" for (name, where), count in _world().counts.items())
        print("netsum.mpi.preload:", ", ".join(counts), file=sys.stderr)
    _world().leave()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", nargs="?", const="libnetsum_mpi.so", required=True, type=Path)
    build(parser.parse_args().build)
