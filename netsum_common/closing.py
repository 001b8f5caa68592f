"""Objects that are closed once, at the latest by the end of their ``with`` block."""

from abc import abstractmethod
from typing import Self


class Closing:
    """A context manager that closes itself."""

    @abstractmethod
    def close(self) -> None:
        """Release what this holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
