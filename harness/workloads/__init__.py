"""What one virtual user does, one file a kind; reaches the outside only through `step`."""
