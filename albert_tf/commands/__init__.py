"""The commands: what each is called with, and which module does it."""
