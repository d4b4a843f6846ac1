"""Rows that are landed beside a stream, each once: its past (`history`), and dead letters after a fix (`replay`)."""
