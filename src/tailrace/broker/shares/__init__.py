"""Share groups as leaders of partitions serve them: which records are with whom, sessions, and fetches that wait."""
