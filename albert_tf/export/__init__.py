"""Exports models as SavedModels for serving."""
