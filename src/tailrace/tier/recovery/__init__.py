"""What a bucket gives of a cluster that is gone: `survey` reads it, `plan` decides what is made of it. No brokers."""
