"""Pictures of a run, made from its folder alone."""
