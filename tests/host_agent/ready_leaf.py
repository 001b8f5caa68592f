"""A process that ranks keep as their leaf and that says it is ready: ``python -m tests.host_agent.ready_leaf --listener FD``."""

import socket
import sys

from host_agent.joining.leaf import READY

if __name__ == "__main__":
    kept = []
    with socket.socket(fileno=int(sys.argv[sys.argv.index("--listener") + 1])) as listener:
        while True:
            kept.append(listener.accept()[0])
            kept[-1].send(READY)
