"""Groups as no client would use them: what is refused, with which error, and what it costs the others."""
