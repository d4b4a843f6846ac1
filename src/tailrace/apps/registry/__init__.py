"""The schema registry: Confluent's REST API over the topic `_schemas`.

`state` is pure: what the topic says, and which records a request asks for. `topic` reads it, writes it and elects the
one who writes. `access` says who asks, and what they may do. `web` is HTTP. `service` joins them, and `process` runs
them.
"""
