"""The prefix index: which replica holds which block, in which tier."""
