"""What runs on a node."""

from pathlib import Path

from cgpfl.deploy.apps import client

app = client(Path(__file__).parents[1])
