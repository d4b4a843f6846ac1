"""Tests of real processes: bad input, kill -9, full disks. Each starts brokers of its own and leaves nothing behind."""
