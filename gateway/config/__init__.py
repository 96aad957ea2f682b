"""The configuration tree, its loader and its hot reload."""
