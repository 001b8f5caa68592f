"""Options that name a testbed, a controller, or a new thing, and how a service writes its log."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from netsum.cli.completions import testbeds
from netsum_common.logs import VARIABLE
from netsum_common.names import check_name
from netsum_common.options import option

if TYPE_CHECKING:
    from netsum_common.channel import TlsFiles

LogFormat = Literal["text", "json"]


def running_testbed_option(
    help: str = "Name of the testbed. Default: NETSUM_TESTBED, else the only one.",
) -> Any:
    """Declare the name of a testbed that runs."""
    return option(help, metavar="NAME", complete=testbeds)


def new_name_option(help: str) -> Any:
    """Declare the name of something new."""
    return option(help, metavar="NAME", read=check_name)


def log_format_option() -> Any:
    """Declare how a service writes its log."""
    return option("The log on standard error: lines of text, or a JSON object a line.", "text", env=VARIABLE)


@dataclass(frozen=True)
class Connection:
    """Options that name a controller, and the certificates for it."""

    controller: str | None = option(
        "Where the controller listens; also unix:PATH. Default: that of the testbed in NETSUM_TESTBED, else "
        "127.0.0.1:28276 if something listens there, else that of the only testbed that is up.",
        metavar="HOST:PORT",
        env="NETSUM_CONTROLLER",
    )
    testbed: str | None = running_testbed_option("The controller of this testbed.")
    tls_ca: Path | None = option(
        "PEM file: trust servers with a certificate from there.", env="NETSUM_TLS_CA"
    )
    tls_cert: Path | None = option("PEM file: client certificate, for mutual TLS.", env="NETSUM_TLS_CERT")
    tls_key: Path | None = option("PEM file: the certificate's private key.", env="NETSUM_TLS_KEY")

    @property
    def tls(self) -> "TlsFiles":
        """The certificates."""
        from netsum_common.channel import TlsFiles

        return TlsFiles(self.tls_ca, self.tls_cert, self.tls_key)
