"""Canonical names to and from files of weights."""
