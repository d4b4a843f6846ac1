"""`tailrace registry` and `tailrace schema`: a registry, and what people ask of one."""
