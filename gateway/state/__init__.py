"""State that outlives an exchange, behind one contract: in memory, or in Redis (Valkey) for several gateways."""
