"""The Flower app of a cgpfl experiment."""
