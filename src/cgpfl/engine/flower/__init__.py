"""Real nodes: a method of the contract over Flower, each client on its own machine.

    orders     what goes down and comes up, as plain data
    seal       orders that a node can tell are the server's
    wire       trees as named arrays, and what is refused
    private    a client's state on its node's disk
    noise      a node's own randomness, where its uploads are private
    node       what a node does when it is asked
    checks     an answer, and whether it can be one
    bounds     what is too far from everybody else's
    rules      when a round counts, and what the server knows
    server     the server's rounds
    pull       replies, one by one, none larger than it may be
    link       asking nodes through Flower
    apps       Flower's ClientApp and ServerApp around them
    call       handing an order to the node's worker, from Flower's process
    worker     the process that stays: JAX imported, programs compiled

Flower starts a new process for every message to a node. That process is kept small (``orders``, ``seal``, ``call``,
``apps``: no JAX) and hands the order to a worker that stays as long as the node does. Only ``link``, ``pull`` and
``apps`` import Flower.
"""
