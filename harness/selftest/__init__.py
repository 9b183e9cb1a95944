"""The meter measures itself: the product's own exchange and decoder against a server that tells the truth."""
