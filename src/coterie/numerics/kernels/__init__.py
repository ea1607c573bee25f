"""The few compiled inner loops."""
