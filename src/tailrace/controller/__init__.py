"""The controller as a pure machine: admin requests become metadata records, and records an image. No I/O, no clock."""
