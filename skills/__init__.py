"""The skill memory: rules about kernels that a machine can check, their store and their probes.

Imports neither the engine nor the screens; a database connection and a probe runner are handed in.
"""
