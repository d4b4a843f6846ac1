"""Who comes in (`visitors`, `oidc`), and what they may do (`rights`)."""
