"""``python -m cgpfl.cli``."""

from cgpfl.cli import main

main()
