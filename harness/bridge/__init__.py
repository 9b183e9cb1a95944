"""All of Locust: its users, what its processes tell each other, what the owner of a run makes of that."""
