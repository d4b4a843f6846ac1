"""Programs beside the brokers: each a process of its own, and a client of the cluster like any other.

They use what any client could use, so that they work with any Kafka, and cost a broker's loop nothing but requests.
"""
