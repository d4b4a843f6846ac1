"""TLS: streams of both sides over OpenSSL, and what their settings are made of. Imported only where TLS is used."""
