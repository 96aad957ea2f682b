"""Block hashes as engines compute them, and a cheap chain over text for pools where that is not possible."""
