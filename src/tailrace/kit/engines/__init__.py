"""What moves the records: one engine for each way to speak Kafka's protocol, behind the same port."""
