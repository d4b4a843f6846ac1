"""The commands that start an app beside the brokers."""
