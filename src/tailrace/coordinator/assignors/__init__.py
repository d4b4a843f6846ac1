"""Who gets which partitions: pure functions of members, topics and what each member has."""
