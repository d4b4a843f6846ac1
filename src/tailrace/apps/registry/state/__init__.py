"""What the registry knows and how it decides, without clock, socket or loop."""
