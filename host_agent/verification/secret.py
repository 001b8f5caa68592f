"""The secret that a job's workers share, and the key that one communicator's workers derive from it.

The epoch comes from a controller that nobody needs to trust, and may repeat; so may chunk numbers and worker ids. So the key is
derived from fresh randomness of every rank too, exchanged in the communicator's first pass under a message authentication code by
the secret. A worker whose own randomness is in the key shares it with no communicator before, whatever the network repeats.
"""

import hmac
import os
import secrets
import stat
from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np

from host_agent.codecs.raw import WORDS
from host_agent.collectives.collective import Passes
from host_agent.errors import SecretError, SecretMismatchError
from host_agent.protocol.passes import Pass
from host_agent.verification.keys import PUBLIC
from host_agent.wire import Admission, fingerprint
from host_agent.wire.constants import OP_BOR

Secret = bytes | str | os.PathLike[str]

LEAST_BYTES: Final = 32
_NONCE_BYTES: Final = 16
_CODE_BYTES: Final = 16
_RANK_WORDS: Final = (_NONCE_BYTES + _CODE_BYTES) // 4
_NAMED: Final = 8  # Ranks that an error lists.


def read_secret(secret: Secret) -> bytes:
    """Return 32 bytes that follow from a secret: at least 32 bytes, or the path of a file that holds as many.

    Raises SecretError if it is too short, or the file cannot be read, or everybody may read it.
    """
    if isinstance(secret, bytes):
        content, name = secret, "the secret"
    else:
        path = Path(secret)
        name = f"the secret in {path}"
        try:
            with path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                content = file.read(1 << 16).rstrip(b"\r\n")
        except OSError as error:
            raise SecretError(
                f"the secret cannot be read from {path}: {error.strerror}; NETSUM_SECRET and secret= name a file"
            ) from None
        if stat.S_ISREG(mode) and mode & (stat.S_IROTH | stat.S_IWOTH):
            raise SecretError(
                f"{name} is open to every user of this machine: chmod o-rw {path}, and make a new secret"
            )
    if len(content) < LEAST_BYTES:
        raise SecretError(
            f"{name} has {len(content)} bytes, expected at least {LEAST_BYTES}: make one by openssl rand -hex 32"
        )
    return blake2b(content, digest_size=32, person=b"netsum secret").digest()


class Session:
    """The key of one communicator; `PUBLIC` without a secret."""

    def __init__(self, secret: bytes | None) -> None:
        self._secret = secret
        self._nonce = secrets.token_bytes(_NONCE_BYTES)
        self.key = PUBLIC

    @property
    def open(self) -> bool:
        """Whether the key is known."""
        return self._secret is None or self.key != PUBLIC

    def passes(self, admission: Admission) -> Passes:
        """Exchange fresh randomness with all workers, and derive the key.

        Raises SecretMismatchError if the code of a rank does not fit the secret.
        """
        assert self._secret is not None
        ranks, rank = admission.world_size, admission.rank
        mine = self._nonce + self._code(self._nonce, rank, ranks)
        words = np.zeros((ranks, _RANK_WORDS), np.uint32)
        words[rank] = np.frombuffer(mine, np.uint32)
        exchange = Pass(
            WORDS, OP_BOR, fingerprint(kind="key exchange", ranks=ranks), words.reshape(-1), words.reshape(-1)
        )
        yield exchange
        while not exchange.done:
            yield None
        nonces = [each.tobytes()[:_NONCE_BYTES] for each in words]
        wrong = [
            other
            for other, each in enumerate(words)
            if not hmac.compare_digest(
                each.tobytes(), nonces[other] + self._code(nonces[other], other, ranks)
            )
        ]
        if nonces[rank] != self._nonce and rank not in wrong:
            wrong.append(rank)
        if wrong:
            names = ", ".join(map(str, wrong[:_NAMED])) + (" and others" if len(wrong) > _NAMED else "")
            raise SecretMismatchError(
                f"worker {rank} cannot verify the key exchange of worker{'s' if len(wrong) > 1 else ''} {names}: the secrets "
                "differ, or packets were changed on the way; give all workers the same secret"
            )
        transcript = ranks.to_bytes(4, "big") + b"".join(nonces)
        self.key = blake2b(transcript, key=self._secret, digest_size=32, person=b"netsum session").digest()

    def _code(self, nonce: bytes, rank: int, ranks: int) -> bytes:
        assert self._secret is not None
        data = rank.to_bytes(4, "big") + ranks.to_bytes(4, "big") + nonce
        return blake2b(data, key=self._secret, digest_size=_CODE_BYTES, person=b"netsum exchange").digest()
