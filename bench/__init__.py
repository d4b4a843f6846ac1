"""How fast the broker is, on this machine, today: `make bench`.

Rules: the broker is a real process with its data on a real disk; every figure stands beside a baseline that was taken
in the same run and beside the goal; "warm" means that the memory of deleted segments is used again, "cold" that every
page is touched for the first time. Nothing here is a test: a slow machine fails nothing.
"""
