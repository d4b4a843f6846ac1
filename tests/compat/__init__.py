"""Proof against software that we did not write: real clients and Apache Kafka's own tools against a running broker.

Rules: nothing here imports the broker's insides, every test names a fact that holds on Apache Kafka as well
(set TAILRACE_COMPAT_BOOTSTRAP to the address of one and the same tests run against it), and every wait is bounded.
"""
