"""What a node counts, and how it is told to those who watch it.

    instruments   histograms of fixed buckets, and what happened to them in the last minute
    traffic       what went in and out of one partition
    text          Prometheus' text format and OpenMetrics

Counters are plain integers, which their owners raise: no lock, and nothing is allocated on the way of a request. They
are summed when somebody asks. Nothing here knows a clock, a socket or a broker.
"""
