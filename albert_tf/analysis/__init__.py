"""What a model is made of, counted from its config; and what it does."""
