"""A simulated engine: a pure model under a virtual clock, and a thin HTTP face over it."""
