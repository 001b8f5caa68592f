"""Worker cores and the switch engine on a network without time and without mercy."""
