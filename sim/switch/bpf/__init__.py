"""The kernel as a switch: the second back end of the compiler, BPF for XDP, and the switch that runs it."""
