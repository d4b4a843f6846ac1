"""The simulated world behind the ports: deterministic, in memory, with faults on demand. Holds no broker logic."""
