"""The state of share-partitions, as coordinators keep it in __share_group_state."""
