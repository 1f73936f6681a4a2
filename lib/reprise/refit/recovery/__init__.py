"""Resident weights that survive a kill, and the joint commit of a version."""
