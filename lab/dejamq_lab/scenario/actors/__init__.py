"""Actors: clients of the SDK that do what a scenario's steps say, in processes, containers or in process.

The stage owns them. Enter at ``performer``.
"""
