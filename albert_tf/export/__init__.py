"""Models as SavedModels, to be served."""
