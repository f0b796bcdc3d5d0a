"""Real nodes: a method of the contract over Flower, each client on its own machine.

    wire       trees as named arrays, and what is refused
    private    a client's state on its node's disk
    node       what a node does when it is asked
    server     the server's rounds
    link       asking nodes through Flower
    apps       Flower's ClientApp and ServerApp around them

Only ``link`` and ``apps`` import Flower.
"""
