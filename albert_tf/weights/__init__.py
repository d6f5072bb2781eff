"""Reads and writes files of weights, by canonical name."""
