"""Connectors to inference engines; each is imported by its own name, and only then its engine."""
