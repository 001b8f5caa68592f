"""State that a request of controllers changes, and that goes back when the request fails."""

import copy
from typing import Any, ClassVar


class EntityStore:
    """Saves and restores those of its attributes that requests change."""

    CHANGED: ClassVar[tuple[str, ...]]

    def save(self) -> dict[str, Any]:
        """Return what `restore` takes."""
        return {name: copy.deepcopy(getattr(self, name)) for name in self.CHANGED}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore a saved state, which cannot be used afterwards."""
        vars(self).update(saved)
