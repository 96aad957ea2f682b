"""Engine kinds: one file each, registered in `registry`."""
