"""One run: collectives, agents, rounds, the bill, checkpoints, certificates and stopping."""
