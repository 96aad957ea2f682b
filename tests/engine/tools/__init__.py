"""Looks into what real engines publish."""
