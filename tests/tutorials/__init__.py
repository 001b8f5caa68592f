"""The exercises of p4lang's tutorials on netsum's testbed; nothing of them is kept in this repository."""
