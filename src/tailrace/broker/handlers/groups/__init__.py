"""Handlers of consumer groups: they find the coordinator's shard and say how answers of several groups make one."""
