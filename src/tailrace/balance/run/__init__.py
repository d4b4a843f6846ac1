"""A plan's way into the cluster: looks, throttles, steps, and what happens on a fault."""
