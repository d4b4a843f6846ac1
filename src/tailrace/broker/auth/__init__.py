"""Who comes in: what a connection of a secured listener must do before it may speak, and how this node logs in to
others. Nothing here is imported by a node whose listeners are PLAINTEXT.

    security        all of it, as the settings say: a door for each listener, and the ways to other nodes
    doors           what is asked at the door of one listener
    identities      certificates, read again when their files change
    entrance        a connection that is not let in yet: TLS handshake, login, deadline
    login           the requests of a login, as a generator
    sessions        a connection whose login is good for a while only
    conversations   what each SASL mechanism asks, as generators
    principals      from the subject of a certificate to a name
"""
