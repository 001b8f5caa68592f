"""The measurements that the docs quote: what `netsum bench` and the `bench` commands of other groups run."""
