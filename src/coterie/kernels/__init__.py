"""The few inner loops that are compiled."""
