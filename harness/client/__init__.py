"""Exchanges over HTTP and the stamps of what arrives; knows nothing of models or meanings."""
