"""Streams groups (KIP-1071): the applications of Kafka Streams, whose tasks the broker assigns."""
