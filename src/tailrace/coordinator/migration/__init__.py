"""A group changes its protocol while it works: from classic to consumer and back (KIP-848)."""
