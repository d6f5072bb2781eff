"""What papers need: ablations, layer analysis, sizes, compiling for TPUs."""
