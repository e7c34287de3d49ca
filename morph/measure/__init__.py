"""Looking at models: what they weigh, and what happens inside them."""
