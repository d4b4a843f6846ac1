"""What must hold of a cluster at any moment and at the end, whatever happened to it. Reads what brokers show of
themselves, their disks and what clients were told; changes nothing and holds no broker logic."""
