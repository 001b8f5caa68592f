"""The log of netsum's services: on standard error, one line for a record, as text or as JSON.

A record names its subject by `FIELDS`, which are given as ``extra``; its message does not repeat them.
"""

import json
import logging
from datetime import UTC, datetime
from typing import Final

VARIABLE: Final = "NETSUM_LOG_FORMAT"
"""Environment variable with the format, for services that are started without an option."""

FIELDS: Final = ("job", "worker", "host", "switch")


class LogFormatter(logging.Formatter):
    """Writes time (UTC), level, logger, fields and message of a record."""

    def __init__(self, as_json: bool) -> None:
        super().__init__()
        self.as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; as text, the lines of a traceback follow it."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        about = {name: getattr(record, name) for name in FIELDS if getattr(record, name, "") != ""}
        message = record.getMessage()
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        if self.as_json:
            head = {"time": time, "level": record.levelname, "logger": record.name}
            return json.dumps(
                {**head, **about, "message": message, **({"exception": trace} if trace else {})}
            )
        fields = [f"{name}={value}" for name, value in about.items()]
        line = f"{' '.join([time, record.levelname, record.name, *fields])}: " + message.replace("\n", "\\n")
        return f"{line}\n{trace}" if trace else line


def configure_logs(log_format: str) -> None:
    """Write this process's records of level INFO and above to standard error. `log_format`: ``"text"`` or ``"json"``."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter(log_format == "json"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def recorded(message: str, level: int = logging.INFO) -> bool:
    """Record a message that is otherwise printed for a person, if the log is JSON.

    Returns whether it was recorded; if not, the caller prints it.
    """
    root = logging.getLogger()
    if not any(getattr(handler.formatter, "as_json", False) for handler in root.handlers):
        return False
    logging.getLogger("netsum").log(level, "%s", message)
    return True
