"""A process that ranks keep as their leaf and that says it is ready: ``python -m tests.host_agent.ready_leaf --listener FD``.

The first rank hears it when the second has connected, so that whoever connects once more knows that both have heard it.
"""

import socket
import sys

from host_agent.joining.leaf import READY

if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[sys.argv.index("--listener") + 1])) as listener:
        kept = [listener.accept()[0] for _ in range(2)]
        for connection in kept:
            connection.send(READY)
        while True:
            kept.append(listener.accept()[0])
            kept[-1].send(READY)
