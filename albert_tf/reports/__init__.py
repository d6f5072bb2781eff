"""Pages and plots about runs."""
