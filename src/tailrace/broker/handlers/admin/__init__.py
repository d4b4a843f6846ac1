"""APIs that end at the active controller: from clients, from brokers, and in Envelopes."""
