"""What runs on the server."""

from pathlib import Path

from cgpfl.deploy.apps import server

app = server(Path(__file__).parents[1])
