"""Bytes only: Kafka's messages, frames and record batches as Python objects and back.

`schema` is the language of the declarations in `apis/`, `compile` turns them into codecs, `frame` adds headers,
`stored` the envelopes of records on internal topics; `records` and `compression` treat record batches. Nothing here
reads a clock, a socket or a disk, or knows what a message is for.
"""
