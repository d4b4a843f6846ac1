"""Our own members of share groups (KIP-932)."""
