"""Signals that end a program by unwinding its stack, at points where an exception is not lost.

Python runs a signal handler between any two instructions of the main thread. An exception raised in a destructor, or in a
callback of a weak reference, is printed and ignored, so that the signal would be lost. An exception raised in an import leaves a
C module half initialized. At such points the handler does not raise: the signal is sent again shortly after.
"""

import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Final

AGAIN_S: Final = 0.01
_IMPORTING: Final = "<frozen importlib"
_WEAK_REFERENCES: Final = os.sep + "weakref.py"


class Unwinding:
    """Signal handlers of a ``with`` block: SIGINT raises `KeyboardInterrupt`, SIGTERM and SIGHUP raise `SystemExit`.

    The block must run in the main thread. A signal that is ignored stays ignored.
    """

    def __enter__(self) -> "Unwinding":
        self._wake, self._again = os.pipe()
        self._thread = threading.get_ident()
        threading.Thread(target=self._send_again, name="signals again", daemon=True).start()
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._before = {
            number: signal.signal(number, self._unwind)
            for number in numbers
            if signal.getsignal(number) != signal.SIG_IGN
        }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._again)

    def _unwind(self, number: int, frame: FrameType | None) -> None:
        if _loses_exceptions(frame):
            os.write(self._again, bytes([number]))
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            raise SystemExit(128 + number)

    def _send_again(self) -> None:
        """Send the main thread again the signals whose exceptions would have been lost."""
        with open(self._wake, "rb", buffering=0) as wake:
            while number := wake.read(1):
                time.sleep(AGAIN_S)
                signal.pthread_kill(self._thread, number[0])


def _loses_exceptions(frame: FrameType | None) -> bool:
    """Whether an exception that is raised here would be ignored, or would leave an import half done."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(_IMPORTING) or code.co_filename.endswith(_WEAK_REFERENCES):
            return True
        if code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
