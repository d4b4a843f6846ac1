"""The functions that serve requests: `handle_x(services, context, request)`. The catalogue names each of them."""
