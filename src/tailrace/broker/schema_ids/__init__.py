"""Records that name their schema, checked before they are stored: for topics that ask for it.

`reading` finds the ids of a batch, `registry` knows what they are, `checks` puts the two together for a Produce.
"""
