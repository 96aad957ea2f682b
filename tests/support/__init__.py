"""What several kinds of tests need to run the real programs: processes, and a gateway in front of something."""
