"""Tests of the simulator's pure parts."""
