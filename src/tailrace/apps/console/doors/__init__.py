"""Who comes in, and with whose rights (`visitors`)."""
