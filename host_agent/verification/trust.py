"""The trust that a communicator needs in the network, as options of a communicator or of the environment."""

import math
import os
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from host_agent.collectives import Request
from host_agent.collectives.collective import check_choice
from host_agent.environment import is_on
from host_agent.errors import MisuseError, SecretError
from host_agent.verification import checked
from host_agent.verification.masking import check_cipher
from host_agent.verification.private import private_request
from host_agent.verification.secret import Secret, Session, read_secret
from host_agent.verification.verified import OnCorruption, VerifiedRequest

T = TypeVar("T")


@dataclass(frozen=True)
class Trust:
    """Options of a communicator, the same at all workers.

    Parameters
    ----------
    verify : bool
        Whether every worker checks that each result is the operation over one contribution of every worker; a secret implies it.
    secret : bytes or path, optional
        At least 32 bytes, or a file with as many that only its owner or group can read: the check also holds against switches,
        controllers and hosts that lie.
    private : bool
        Whether contributions and results are masked with streams from the secret, so that the network learns neither.
    scale : float
        Largest magnitude of any element in masked sums: their blocks then travel with one exponent, so that the network does
        not learn which of them are large, small or zero. A sum with a larger element is refused. 0: each block has its own.
    on_corruption : {"raise", "retry"}
        What happens to a result that fails its check: a `VerificationError`, or one repetition first.
    """

    verify: bool = False
    secret: Secret | None = field(default=None, repr=False)
    on_corruption: OnCorruption = "raise"
    private: bool = False
    scale: float = 0.0

    def __post_init__(self) -> None:
        check_choice("verify", self.verify, (False, True))
        check_choice("private", self.private, (False, True))
        check_choice("on_corruption", self.on_corruption, ("raise", "retry"))
        number = isinstance(self.scale, int | float) and 0 < self.scale < math.inf
        if self.scale != 0 and not (number and self.private):
            raise MisuseError(f"scale: expected a positive number, with private=True, got {self.scale!r}")

    @classmethod
    def from_environment(cls, **given: Any) -> "Trust":
        """Read NETSUM_VERIFY, NETSUM_PRIVATE (0 or 1), NETSUM_SECRET (a path) and NETSUM_ON_CORRUPTION; `given` goes before."""
        found: dict[str, Any] = {
            "verify": is_on("NETSUM_VERIFY"),
            "private": is_on("NETSUM_PRIVATE"),
            "secret": os.environ.get("NETSUM_SECRET") or None,
            "on_corruption": os.environ.get("NETSUM_ON_CORRUPTION", "raise"),
        }
        return cls(**found | {name: value for name, value in given.items() if value is not None})

    def verifier(self) -> "Verifier":
        """Return what checks the collectives of one communicator. Raises SecretError for a secret that cannot be used."""
        if self.private:
            if self.secret is None:
                raise SecretError(
                    "private=True needs a secret that all workers share: pass secret= or set NETSUM_SECRET"
                )
            check_cipher()
        secret = read_secret(self.secret) if self.secret is not None else None
        return Verifier(replace(self, verify=self.verify or secret is not None, secret=None), Session(secret))


class Verifier:
    """Checks the collectives of one communicator."""

    def __init__(self, trust: Trust, session: Session) -> None:
        self._trust = trust
        self._session = session
        self._loaded = False

    def load(self) -> None:
        """Compile or load what checks need, if all collectives have them."""
        if self._trust.verify:
            self._load()

    def wrap(self, request: Request[T], verify: bool | None, world_size: int) -> Request[T]:
        """Return the request with a check, if it is to have one. `verify`: for this request alone."""
        if verify is False and not self._session.open:
            raise MisuseError("verify=False: a communicator with a secret checks every result")
        if not (self._trust.verify if verify is None else verify):
            return request
        self._load()
        private = self._trust.private
        made = private_request(request, world_size) if private else request
        return VerifiedRequest(made, self._session, self._trust.on_corruption, private, self._trust.scale)

    def _load(self) -> None:
        if not self._loaded:
            self._loaded = True
            checked.load()
