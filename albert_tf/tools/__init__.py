"""What the commands beside the release's programs do."""
