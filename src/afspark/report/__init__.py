"""What is told about a run: tables, a JSON document, a plot, and the exact recount it is checked against."""
