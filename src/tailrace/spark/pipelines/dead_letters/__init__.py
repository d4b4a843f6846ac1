"""Dead letters of a pipeline once more: which of them count (`attempts`, `letters`), and each once (`replay`)."""
