"""Statistics that parties compute from sums."""
