"""Agent frameworks as their users run them, in an environment of their own."""
