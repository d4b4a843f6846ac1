"""The vocabulary of the project. Imports nothing of ours and never touches the kernel."""
