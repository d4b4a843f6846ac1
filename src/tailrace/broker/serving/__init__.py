"""From a socket to a handler and back: what accepts, what speaks on a stream, and the way of a request.

    acceptor     listeners, bounds on connections, idle ones; knows nothing of what is spoken on them
    kafka        what all connections that speak Kafka's protocol share
    connection   one of them: frames in, answers out, in order; with `outbox` and `buffers`
    dispatch     the pipeline of a request: decode, authorise, admit, handle, account, encode
    express      the short way through that pipeline for small produces

Another protocol stands beside `kafka`.
"""
