"""Newton's method: one loop of rounds, and an oracle for each kind of loss."""
