"""Transport: how messages travel between the agents."""
