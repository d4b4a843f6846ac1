"""Messages: which are read (`records`, `filters`), how they are seen (`views`: `schemas`, `masks`), and as what their
bytes are shown (`content`).
"""
