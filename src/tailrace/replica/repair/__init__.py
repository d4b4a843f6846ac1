"""Damage: what a start misses, and what is found later in old segments, by a slow scrub and by hints, and mended from
other replicas.

damage     what a start finds missing
scrubber   reads all segments again and again, slowly; those that are suspected come first
repairs    what follows on damage, partition by partition, until it is gone
source     a range of offsets, as another replica has it
mending    one segment written anew
upkeep     both of them, as one task
"""
