"""What is in the tier: the machine of __remote_log_metadata, and which segment serves an offset. Pure."""
