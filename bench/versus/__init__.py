"""Side by side: the same workload, client and machine for Tailrace and for what a user might run instead.

`python -m bench.versus` (`make bench-kafka`) takes rows of `workloads`, each on every rival in turns (A B A B ...), and
writes every single figure to results.json. `page` makes docs/benchmarks.md and its charts from that file alone.
"""
