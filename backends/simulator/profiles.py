"""The simulator's physics are the shared hardware profiles."""

from backends.profiles import EngineName, FsTier, HostTier, Knots, Profile, interpolate, load_profile, profile_names

__all__ = ["EngineName", "FsTier", "HostTier", "Knots", "Profile", "interpolate", "load_profile", "profile_names"]
