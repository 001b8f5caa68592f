"""The embedded switch, the kernel and BMv2 on the same virtual cables: ``python -m tests.veth``, as root."""
