"""How far every method is behind the best one, on many kinds of problems: which can be switched on blindly?

Nothing heavy is imported here: a worker process chooses its cores before JAX looks for them.
"""
