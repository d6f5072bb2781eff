"""Answers about texts from trained models."""
