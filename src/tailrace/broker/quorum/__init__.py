"""The metadata quorum of a node: its log, its snapshots, its Raft driver, and the controller while it is active.

metadata_log   the log of __cluster_metadata-0 and the snapshots in its folder
snapshots      the format of a snapshot, written, read and taken in pieces
driver         joins the pure Raft node to log, timers and peers
active         what only the active controller does: decide, append, wait until it is committed
quorum         joins them; the only one that the rest of the broker knows
"""
