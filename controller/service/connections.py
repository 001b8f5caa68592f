"""Limits of the HTTP server: how long a request may take, and how many connections may be open."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable
from typing import Any, Final

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream

CLIENT_TIMEOUT_S: Final = 10.0
"""Time limit of a connection, from its opening to the end of the answer, and of a viewer for taking a snapshot."""
MOST_CONNECTIONS: Final = 256
MOST_VIEWERS: Final = 192  # Connections that viewers may hold; the others are for requests that end.
LARGEST_HEADER: Final = 16 << 10
LARGEST_BODY: Final = 4 << 10  # No request needs a body.


class Connections(HTTPServer):
    """An HTTP server that takes one request per connection and limits the number of connections.

    If a further connection would exceed the limit, the address with the most connections loses its oldest one. So a client that
    sends its request at once is answered despite many slow clients, even from the same address, as on loopback.
    """

    def initialize(self, *arguments: Any, **options: Any) -> None:
        """Set the limits of a request."""
        options |= {"no_keep_alive": True, "max_header_size": LARGEST_HEADER, "max_body_size": LARGEST_BODY}
        super().initialize(*arguments, **options)
        self._open: dict[IOStream, tuple[str, asyncio.TimerHandle]] = {}
        """Address and deadline of each open connection, the oldest first; deadlines of viewers are cancelled."""

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        """Make room for a connection, and give it its deadline."""
        self._open = {each: about for each, about in self._open.items() if not each.closed()}
        if len(self._open) >= MOST_CONNECTIONS:
            max(self._by_address(viewing=False).values(), key=len)[0].close()
        deadline = asyncio.get_running_loop().call_later(CLIENT_TIMEOUT_S, stream.close)
        self._open[stream] = str(address[0]), deadline
        super().handle_stream(stream, address)

    def keep(self, stream: IOStream) -> bool:
        """Remove the deadline of a viewer's connection; return False if there are too many viewers."""
        if stream.closed():
            return False
        address, deadline = self._open[stream]
        viewers = self._by_address(viewing=True)
        if sum(map(len, viewers.values())) >= MOST_VIEWERS:
            busiest = max(viewers.values(), key=len)
            if busiest is viewers.get(address):
                return False
            busiest[0].close()
        deadline.cancel()
        return True

    async def in_time(self, stream: IOStream, writing: Awaitable[None]) -> None:
        """Wait until a viewer has taken the written data, and close the connection if the viewer takes too long."""
        deadline = asyncio.get_running_loop().call_later(CLIENT_TIMEOUT_S, stream.close)
        try:
            await writing
        finally:
            deadline.cancel()

    def _by_address(self, viewing: bool) -> dict[str, list[IOStream]]:
        """Return the open connections of viewers, or all others, by address."""
        found: dict[str, list[IOStream]] = defaultdict(list)
        for stream, (address, deadline) in self._open.items():
            if deadline.cancelled() == viewing and not stream.closed():
                found[address].append(stream)
        return found
