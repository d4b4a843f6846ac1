"""What is seen of a node from outside: `/metrics` and `/health` by HTTP, on listeners of their own.

    requests    what requests have taken: fed by the last step of their way, kept as plain integers
    families    what is told, by subject; each is read when somebody asks
    health      whether the node lives, is ready, and its cluster is whole: pure
    http        a few lines of HTTP/1.1 on the node's own acceptor
    pages       which page a question gets, and who may see it

Nothing here is made unless metrics.listeners is set.
"""
