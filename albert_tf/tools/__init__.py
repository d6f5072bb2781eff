"""Commands in addition to the release's programs."""
