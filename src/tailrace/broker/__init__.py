"""The shell: connections, dispatch, handlers, and `Broker`, which joins them to the layers below.

Only this layer and `replica` know that there is an event loop; neither sees a socket, a clock or a file but through
`model.ports`.
"""
