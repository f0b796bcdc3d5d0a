"""A campaign of bad input: a result or one line, soon; of a damaged folder the right answer or none."""
