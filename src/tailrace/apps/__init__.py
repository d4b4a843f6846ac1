"""Programs beside the brokers: each a process of its own, and a client of any Kafka."""
