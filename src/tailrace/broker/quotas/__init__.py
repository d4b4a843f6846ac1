"""How much a client may take of this broker (KIP-13, KIP-124, KIP-219, KIP-599, KIP-612).

    windows      what was used lately, and how long to wait until that is within a quota; pure
    meters       which quota holds for a client, and the windows of all who have one
    tolls        what one request has used, from its first byte to its answer
    connections  how fast new ones may come

While no quota is set nothing of this is made, and a request pays for the test of a number.
"""
