"""The storage engine over the Disk port: Kafka's files, appended, read, recovered, cleaned. Single-threaded; knows
nothing of replication, sockets or time beyond the Clock it is given."""
