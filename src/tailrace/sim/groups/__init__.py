"""Consumer groups in a run: their members, and what becomes of them."""
