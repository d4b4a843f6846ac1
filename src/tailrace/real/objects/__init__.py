"""Object stores, as Kafka's remote tier needs them."""
