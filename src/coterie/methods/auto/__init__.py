"""What `method="auto"` assumes about the costs of methods."""
