"""An explicit-state explorer of the shipped P4 program and the shipped worker core; see docs/explorer.md."""
