"""Groups whose members choose the assignment themselves: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""
