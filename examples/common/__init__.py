"""What the training programs share: backends, the step clock, progress, checks at the end."""
