"""Mathematics without messages: losses, penalties, arrays, kernels and acceleration."""
