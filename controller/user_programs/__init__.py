"""P4 programs of the user's own on a testbed's switches: their files, their table entries, and loading both."""
