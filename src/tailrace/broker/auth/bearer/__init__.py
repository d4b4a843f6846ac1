"""OAUTHBEARER: tokens (JWT), and who may have signed them. Imported by a node that takes such tokens, and by no other.

judge      a token is good, or why not; how many are looked at at once
checks     the signature and the claims of one token
keys       a set of public keys (JWKS), as its issuer publishes it
source     the keys as they were last read, and when they are read again
settings   what of all this the settings say
"""
