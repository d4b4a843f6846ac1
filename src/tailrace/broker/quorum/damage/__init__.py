"""A metadata log whose disk has lost something: how that is noticed, what is left, and what becomes of it.

`synced_end` keeps what must be there, `inspection` compares, `rebuilding` makes a sound log of what is left, and
`report` tells people what would be lost.
"""
