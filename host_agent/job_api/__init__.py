"""The job API: its messages, their Python stubs, and where a controller serves it."""

from typing import Final

CONTROLLER_VARIABLE: Final = "NETSUM_CONTROLLER"
"""Names the job API for workers and operators: "HOST:PORT" or "unix:PATH"."""
DEFAULT_CONTROLLER: Final = "127.0.0.1:28276"
