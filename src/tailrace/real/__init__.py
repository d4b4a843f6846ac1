"""The real world behind the ports: the only code that touches the kernel."""
