"""Engines: contracts, fleet, HTTP client, engine kinds, probing, simulator."""
