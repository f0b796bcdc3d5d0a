"""``python -m cgpfl``: the command line, where its script is not on the path."""

from cgpfl.cli import main

if __name__ == "__main__":
    main()
