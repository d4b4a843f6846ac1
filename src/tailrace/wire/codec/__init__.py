"""How codecs are written: the source text of one decoder or encoder, for one (message, version).

`wire.compile` is the way in; nothing else makes functions of these.
"""
