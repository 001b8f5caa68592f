"""Findings of checks."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """Finding of one check."""

    subject: str
    found: str
    needed_for: str = ""  # Features that do not work without it; empty if all is well.
    remedy: str = ""  # The remedy; empty if all is well.
    required: bool = False  # Whether nothing works without it: then `netsum doctor` fails.
    tried: bool = True  # Whether the check was done; `remedy` then says how to have it done.

    @property
    def well(self) -> bool:
        """Whether nothing need be done."""
        return not self.remedy

    def to_json(self) -> dict[str, object]:
        """Return it as `netsum doctor --json` shows it."""
        return {
            "subject": self.subject,
            "well": self.well,
            "tried": self.tried,
            "required": self.required,
            "found": self.found,
            "needed_for": self.needed_for,
            "remedy": self.remedy,
        }
