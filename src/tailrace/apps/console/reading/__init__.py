"""Messages: which are read (`records`; `filters`, tried in child processes by `choosing`), how they are seen (`views`:
`schemas`, `masks`), and as what their bytes are shown (`content`).
"""
