"""The organs, one file each. They know nothing of training, figures or other people's checkpoints."""
