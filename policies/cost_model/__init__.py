"""How long a replica takes, learned from what it did; starts from its hardware profile."""
