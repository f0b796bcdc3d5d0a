"""Every table and figure of the paper, with the published numbers beside ours."""

from cgpfl.paper.make import PARTS, Made, make

__all__ = ["PARTS", "Made", "make"]
