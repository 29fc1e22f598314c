"""What a GPU is and what a launch asks of it."""
