"""The join of exchanges and tiering: event sources of the fleet, prompts to look up, predictions to check."""
