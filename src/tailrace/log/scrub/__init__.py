"""Looking for damage in what was written long ago, and mending it.

    ending   whether a log that was stopped cleanly still ends where it did
    walk     which bytes are good batches: the rules, and where good ones begin again
    check    one closed segment, in small steps
    rereads  offsets that are read again and again
    copy     a new segment out of the good batches of an old one and of another replica's, which takes its place

Nothing here imports `Log`.
"""
