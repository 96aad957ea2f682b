"""What-if: recorded traffic through other routing policies, in virtual time."""
