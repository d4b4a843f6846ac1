"""The REST API: paths and parameters to questions, answers and refusals to JSON."""
