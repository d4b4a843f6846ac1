"""What a node does as a member of a cluster: speaks to its peers, registers and heartbeats, finds the controller.

A node that is a cluster by itself needs none of the network parts; they are imported when there are peers.
"""
