"""The measurements that the docs quote: what `netsum bench` and the `bench` and `claims` commands of other groups run."""
