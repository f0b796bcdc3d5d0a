"""Deployment on real nodes: an experiment as a Flower app, and what runs it.

agreement      [deploy]: what a federation of nodes agrees on
apps           Flower's server and client, from an app's experiment.toml
survey         agreeing on a form, where only nodes have the data
personal       a node's own model, on the node
lock           one server a run folder
secrets        what the server keeps to itself: keys, who is who
server         the server's run: methods, checkpoints, run folder
layout         the app that `cgpfl deploy init` writes
certificates   keys of the server and the nodes
processes      SuperLink, SuperNodes and runs as processes
superlink      Flower's SuperLink, with a gate and more patience for its database
gate           who may do what there
trial          all of it on this machine
"""
