"""The files of one log: segments with their indexes, in order, and how much of them is on the device."""
