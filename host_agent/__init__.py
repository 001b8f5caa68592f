"""The worker side of netsum: sums arrays over the workers of a job in the network; `netsum` has its public names."""
