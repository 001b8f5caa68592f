"""Errors as P4Runtime reports them: a canonical gRPC code and one sentence.

Where the specification names a code, that code is used; where it does not, the one BMv2's server answers.
"""

from collections.abc import Sequence
from enum import IntEnum
from functools import partial

from netsum_common.errors import NetsumError
from netsum_common.p4rt import p4runtime_pb2, status_pb2

SPACE = "netsum-v1model"  # The error space of `p4.v1.Error.space`.

DETAILS_BUDGET_BYTES = 6 * 1024
"""gRPC clients refuse trailing metadata above 8 KiB by default; the rest is room for base64."""


class Code(IntEnum):
    """The canonical gRPC codes this server answers with."""

    OK = 0
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13


class P4RuntimeError(NetsumError):
    """A request, an update of a batch, or a stream message that cannot be carried out.

    `message`: one sentence with the expectation and the remedy.
    """

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


# One for each code: `invalid("expected …")` builds the error.
invalid = partial(P4RuntimeError, Code.INVALID_ARGUMENT)
out_of_range = partial(P4RuntimeError, Code.OUT_OF_RANGE)
not_found = partial(P4RuntimeError, Code.NOT_FOUND)
already_exists = partial(P4RuntimeError, Code.ALREADY_EXISTS)
permission_denied = partial(P4RuntimeError, Code.PERMISSION_DENIED)
failed_precondition = partial(P4RuntimeError, Code.FAILED_PRECONDITION)
exhausted = partial(P4RuntimeError, Code.RESOURCE_EXHAUSTED)
aborted = partial(P4RuntimeError, Code.ABORTED)
unimplemented = partial(P4RuntimeError, Code.UNIMPLEMENTED)


class BatchError(NetsumError):
    """A Write batch of which at least one update failed.

    `outcomes`: one item an update, in the order of the request; None for an update that succeeded.
    """

    def __init__(self, outcomes: Sequence[P4RuntimeError | None]) -> None:
        self.outcomes = tuple(outcomes)
        failed = [(index, error) for index, error in enumerate(self.outcomes) if error is not None]
        index, first = failed[0]
        noun = "update" if len(self.outcomes) == 1 else "updates"
        super().__init__(
            f"{len(failed)} of {len(self.outcomes)} {noun} failed; "
            f"the first, at index {index}: {first.code.name}: {first.message}"
        )

    def status(self) -> status_pb2.Status:
        """Build the `google.rpc.Status` of `grpc-status-details-bin`: one `p4.v1.Error` an update.

        Texts are shortened, and then left out, where the whole would not pass a client's limit on metadata.
        """
        for text_limit in (400, 80, 0):
            status = self._status(text_limit)
            if status.ByteSize() <= DETAILS_BUDGET_BYTES:
                break
        return status

    def _status(self, text_limit: int) -> status_pb2.Status:
        status = status_pb2.Status(code=int(Code.UNKNOWN), message=str(self)[: max(text_limit, 200)])
        for error in self.outcomes:
            detail = p4runtime_pb2.Error(canonical_code=int(Code.OK))
            if error is not None:
                detail.canonical_code = int(error.code)
                if text_limit:
                    detail.message = error.message[:text_limit]
                    detail.space = SPACE
            status.details.add().Pack(detail)
        return status
