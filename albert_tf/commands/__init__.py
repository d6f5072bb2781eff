"""The commands: the flags of each, and the module that implements it."""
