"""A share-partition: a partition as one share group sees it, and which of its records are with whom. Pure."""
