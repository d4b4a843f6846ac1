"""Reading what lies in the tier alone: footers, chunks by way of a cache on the local disk, batches, times, aborts."""
