"""Run a command that the kernel kills when its parent dies: ``python -I -S die_with_parent.py PARENT_PID COMMAND...``.

This is a separate program because `preexec_fn` would run Python between fork and exec, which can hang a parent
that has threads (gRPC starts some). The death signal survives exec. The kernel sends it when the *thread* that
started the command ends.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Request the death signal, then exec the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        sys.exit(f"cannot ask for a death signal: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # The parent died before the request.
        sys.exit(1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
