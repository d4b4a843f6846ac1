"""Tables of pairs of schemas with the verdict and the reason, from the published rules of Avro and of Confluent."""
