"""Write what they are given; no sink imports another."""
