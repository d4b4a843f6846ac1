"""Clusters of real processes under faults: nothing acknowledged is lost, doubled or out of order."""
